"""Check that a node is fit for jobs: about twenty checks, and a runner that Slurm calls.

A *reader* fetches a text, such as the output of nvidia-smi. Each reader runs in a separate process
with a time limit, because a reader may hang. A *check* evaluates the texts of its readers with a
pure function. A *pass* runs several checks once. This package needs only Python's standard library.
"""
