"""What is told of plans, and what is refused."""
