"""Allowed connections, as policies of Kubernetes and Cilium and as a packet filter."""
