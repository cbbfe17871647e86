"""Long checks: Slurm jobs that measure a node or a pair of nodes while no other job runs there.

The program stores each value in a time series, and compares it with a threshold and with the
node's history. If the value is worse, the program drains the node. See docs/health-long.md.
"""
