"""A job gets only the CPUs, memory and devices that it requested."""
