"""Test the whole engine with small programs: its operations, and the state afterwards."""
