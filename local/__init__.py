"""A real Kubernetes on one host: its binaries, its node image, and its start and stop."""
