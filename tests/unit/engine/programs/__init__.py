"""The whole engine runs small programs: their operations, and the state that remains."""
