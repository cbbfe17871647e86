"""The Slurm cluster as typed Pulumi components."""
