"""The pipeline: filters in their order, one decision, the facts it needs, and the query to Placement."""
