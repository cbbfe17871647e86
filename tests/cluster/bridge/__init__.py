"""Tests of the bridge: Slurm schedules pods of Kubernetes, beside its jobs."""
