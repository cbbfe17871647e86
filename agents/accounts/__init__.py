"""Keeps accounts, users and QOS in agreement with the settings, and leaves what people made.

It goes by sacctmgr, not by slurmrestd. Tried on Slurm 24.11.5, slurmrestd makes an account without
the parent that was asked for, sets a user's list of QOS where none was named, and changes neither
comments nor a default QOS that is there; sacctmgr does just what it is told.
"""
