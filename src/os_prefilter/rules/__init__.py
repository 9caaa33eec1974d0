"""The operator's own rules: model, reader, checks, the filter, and their reload."""
