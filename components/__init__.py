"""Typed Pulumi components of the Slurm cluster."""
