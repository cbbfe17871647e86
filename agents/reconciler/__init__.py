"""Keeps what Slurm remembers in agreement with what the operator asked for."""
