"""Check that a node is fit for jobs: about twenty checks, and a runner that Slurm calls.

A *reader* fetches a text in a separate process with a time limit, because it may hang. A *check* is
a pure function of such texts. This package needs only Python's standard library.
"""
