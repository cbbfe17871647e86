"""Tests that need another kernel: they run on a virtual machine with a stock Debian."""
