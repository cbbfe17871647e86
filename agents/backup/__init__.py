"""Backups with restic: dumps of the accounting database, and sets with the jail and the queue."""
