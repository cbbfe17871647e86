"""Start and stop the pods of nodes on demand, as Slurm's power saving requests; see
docs/ondemand.md.

Slurm wakes a node for a job (POWERING_UP) and puts a node to sleep (POWERING_DOWN). The agent reads
these states from Slurm, and creates and deletes pods until the pods match the states. slurmctld's
ResumeProgram only calls the agent, so that the agent reads the states at once. A lost call
therefore delays a node by seconds.
"""
