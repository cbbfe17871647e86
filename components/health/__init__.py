"""Nodes that break: long checks, the reconciler, and the limits of what it may change."""
