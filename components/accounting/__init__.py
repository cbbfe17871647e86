"""Accounting: slurmdbd, its database, and the Job that applies the settings of accounts."""
