"""Compare the settings, the state in Kubernetes and the state in Slurm, and act."""
