"""Machines with sshd, made a cluster of by kubeadm."""
