"""Long checks: Slurm jobs that measure a node, or a pair of nodes, while nobody else is on it.

What was measured is kept as a time series, held against a threshold and against the node's own
history, and a node that is below is drained. See docs/health-long.md.
"""
