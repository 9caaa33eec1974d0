"""Diagnosis: why a request has no host, and the suggested changes."""
