"""Run small programs with the whole engine, and check the operations and the resulting state."""
