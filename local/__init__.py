"""Run a real Kubernetes cluster on one host: build its programs and images, start and stop it."""
