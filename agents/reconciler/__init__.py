"""Compares what is wanted of nodes, what Kubernetes says and what Slurm knows, and acts."""
