"""Names of the causes of nodes' problems, as in reports and settings."""

NOT_READY = "not-ready"
CORDONED = "cordoned"
MAINTENANCE = "maintenance"
UNSCHEDULED = "unscheduled"
GATED = "gated"
POD = "pod"
SLURMD = "slurmd"
CONFIG = "config"
SIZE = "size"
JAIL = "jail"
LEAVE = "leave"
LEAVING = "leaving"
ROLL = "roll"
DUPLICATE = "duplicate-job"

REPAIRED = frozenset({NOT_READY, UNSCHEDULED, POD, SLURMD, SIZE, JAIL})
"""Causes against which the reconciler takes repair steps (`agents.reconciler.ladder`). The
reconciler also takes such steps after failed checks, and for conditions of Kubernetes nodes."""
