"""Check that a node is fit for jobs: about twenty checks, and the one runner that Slurm calls.

A *reader* fetches a text. It may hang, so it is a separate process with a time limit. A *check* is
a pure function of such texts. Everything here needs only Python's standard library.
"""
