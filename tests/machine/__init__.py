"""Tests that need a stock Debian with its own kernel: they run on a virtual machine."""
