"""Start and stop the pods of nodes on demand, as Slurm's power saving asks; see docs/ondemand.md.

Slurm wakes a node for a job (POWERING_UP) and puts a node to sleep (POWERING_DOWN). The agent reads
these states from Slurm, and creates and deletes pods until they agree. slurmctld's ResumeProgram
only makes the agent look at once. A lost call therefore delays a node by seconds.
"""
