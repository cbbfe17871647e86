"""Long checks: Slurm jobs that measure a node or a pair of nodes while no other job runs there.

The program stores each measured value in a time series. It compares the value with a threshold and
with the node's earlier values. If the value is worse, the program drains the node. See
docs/health-long.md.
"""
