"""The parts of ``docs/benchmarks/mixed_cloud.py``."""
