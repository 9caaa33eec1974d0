"""Audit: the effect on every image of a cloud of enabling filters."""
