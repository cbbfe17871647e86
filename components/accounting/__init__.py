"""Records of jobs, and limits of accounts: slurmdbd, its database and the accounts' Job."""
