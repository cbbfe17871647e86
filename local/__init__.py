"""A real Kubernetes on one machine: its binaries, its node image, and its start and stop."""
