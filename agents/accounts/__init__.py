"""Reconcile accounts, users and QOS with the settings, except those that people made by hand.

This package uses sacctmgr, not slurmrestd. In tests with Slurm 24.11.5, slurmrestd created an
account without the requested parent. It also set a user's list of QOS if the request had none, and
ignored changes of comments and of an existing default QOS. sacctmgr has none of these faults.
"""
