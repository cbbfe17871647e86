"""Health of nodes: long checks, the reconciler, and the limits of the reconciler's rights."""
