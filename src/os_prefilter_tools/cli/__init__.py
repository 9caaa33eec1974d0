"""The command ``os-prefilter``: argument parsing and printing only."""
