"""Keep accounts, users and QOS as the settings say, and leave alone what people made.

This package uses sacctmgr, not slurmrestd. In tests with Slurm 24.11.5, slurmrestd made an account
without the requested parent. It also set a user's list of QOS if the request named none, and
changed neither comments nor an existing default QOS. sacctmgr does exactly what it is asked.
"""
