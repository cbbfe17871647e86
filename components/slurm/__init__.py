"""Slurm's daemons and clients: configuration, slurmctld, slurmd, login nodes and slurmrestd."""
