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
"""Causes that a ladder repairs (`agents.reconciler.ladder`). A ladder also repairs failed checks
and conditions of Kubernetes nodes."""
