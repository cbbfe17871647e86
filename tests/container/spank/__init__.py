"""The SPANK plugin in a real slurmd, with its own jail."""
