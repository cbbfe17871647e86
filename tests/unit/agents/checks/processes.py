"""Lists of the processes of a node, in the format of the reader `processes`."""

IDLE = "1 0 0 S 100 - tini \n7 1 0 S 110 - slurmd \n"
BUSY = IDLE + "90 7 0 S 200 - slurmstepd slurmstepd: [42.batch] \n95 90 2000 R 201 - python3 \n"
"""Processes of a node without jobs, and of one with job 42."""
