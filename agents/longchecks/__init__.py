"""Long checks: Slurm jobs that measure a node, or a pair of nodes, while no other job is on it.

Each value is stored in a time series, and compared with a threshold and with the node's own
history. A node with a worse value is drained. See docs/health-long.md.
"""
