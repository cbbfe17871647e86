"""The whole engine: small programs, a stack's life, and what is left in the state."""
