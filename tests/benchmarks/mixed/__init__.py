"""The parts of ``tests/benchmarks/mixed_cloud.py``."""
