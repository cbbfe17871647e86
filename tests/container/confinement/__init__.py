"""Tests that need a CPU layout different from that of the tests' local stack."""
