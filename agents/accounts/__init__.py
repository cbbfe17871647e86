"""Make Slurm's accounts, users and QOS match the settings.

Objects that people made by hand stay unchanged, unless the settings name them.

This package uses sacctmgr, not slurmrestd. In tests with Slurm 24.11.5, slurmrestd created an
account without the requested parent. It also set a user's list of QOS if the request had none, and
ignored changes of comments and of an existing default QOS. sacctmgr has none of these faults.
"""
