"""Why no host is left for a request, and what would help."""
