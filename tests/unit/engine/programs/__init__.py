"""The whole engine: small programs, the life of a stack, and the state that remains."""
