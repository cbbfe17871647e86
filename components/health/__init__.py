"""Health of nodes: long checks, and the reconciler, which repairs nodes, with the limits of its
rights."""
