"""Nova's own test suites, out of its wheel, run with our filters activated."""
