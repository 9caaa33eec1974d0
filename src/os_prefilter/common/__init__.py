"""Helpers of every part: errors, quoting of untrusted text, entry points, threads."""
