"""Tests that need another CPU layout than the nodes of the shared stack."""
