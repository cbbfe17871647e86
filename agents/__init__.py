"""Python code that runs inside the cluster.

A *node* is a node of Slurm, and a *machine* is a node of Kubernetes. The *jail* is the root file
system of users' sessions and jobs (docs/jail.md).
"""
