"""Test the reports about plans, and the refusals of plans."""
