"""Export Slurm's state as Prometheus metrics; see docs/metrics.md."""
