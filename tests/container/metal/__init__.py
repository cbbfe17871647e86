"""Machines with sshd, on which kubeadm creates a cluster."""
