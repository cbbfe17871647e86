"""What needs another kernel than the tests' machine has: a virtual one with a stock Debian."""
