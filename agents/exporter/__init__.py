"""Slurm's state as metrics of Prometheus: see docs/metrics.md."""
