"""Start and stop the pods of on-demand nodes when Slurm's power saving requests it; see
docs/ondemand.md.

Slurm wakes a node for a job (POWERING_UP) and puts a node to sleep (POWERING_DOWN). The agent reads
these states from Slurm, and creates and deletes pods until the pods match the states. slurmctld's
ResumeProgram only calls the agent, so that the agent reads the states at once. If a call is lost,
the agent reads the states some seconds later, because it also reads them at regular intervals.
"""
