"""The only I/O: one file for each outside system."""
