"""A job gets the CPUs, memory and devices that it requested, and no more."""
