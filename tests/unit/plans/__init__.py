"""Reports about plans, and refused plans."""
