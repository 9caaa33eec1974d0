"""A row, a filter and a reporter for os-prefilter."""
