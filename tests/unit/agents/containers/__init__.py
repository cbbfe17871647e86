"""Tests of agents/containers, which imports users' container images."""
