"""Whether a node is fit for jobs: about twenty checks, and the one runner that Slurm calls.

A *reader* fetches a text, and may hang: it is a process of its own, with a time limit. A *check* is
a pure function over such texts. Nothing here needs more than Python's standard library.
"""
