"""Check that a node is fit for jobs: about twenty checks, and a runner that Slurm calls.

A *reader* fetches a text, such as the output of nvidia-smi. It runs in a separate process with a
time limit, because it may hang. A *check* judges such texts with a pure function. This package
needs only Python's standard library.
"""
