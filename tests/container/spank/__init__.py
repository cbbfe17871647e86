"""The SPANK plugin, in a real slurmd with a jail."""
