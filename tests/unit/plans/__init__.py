"""Reports of plans, and their refusals."""
