"""Ironic's API: nodes, their traits and their deploy steps."""
