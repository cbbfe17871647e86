"""Labels, taints, conditions and annotations that the program writes and agents read."""

from typing import Final

DOMAIN: Final = "slurmstack.dev"
STACK: Final = "app.kubernetes.io/name=slurmstack"
"""Selector of all objects of a stack."""
COMPONENT: Final = f"{DOMAIN}/component"
"""Label with the component to which an object belongs."""

WORKER: Final = "worker"
"""Component of pods that are Slurm's nodes."""
LOGS: Final = "logs"
"""Component of the pod that sends the daemons' logs to a log collector."""
NODE_EXPORTER: Final = "machines"
"""Component of node-exporter, one pod on each Kubernetes node."""
REBOOTER: Final = "rebooter"
"""Component of the pods that reboot their Kubernetes node."""
SNAPSHOT_OF: Final = f"{DOMAIN}/snapshot-of"
"""Label of VolumeSnapshots that agents/snapshots made, with the claim. It keeps all others."""

REPORT: Final = f"{DOMAIN}/report"
"""Annotation of the Job after a deploy with its report on the nodes."""
REBOOT: Final = f"{DOMAIN}/reboot"
"""Annotation of a Kubernetes node that requests a reboot: its boot's ID, and Unix time in s."""
UNHEALTHY: Final = f"{DOMAIN}/unhealthy"
"""Key of the taint of Kubernetes nodes with faulty hardware."""
CONDITION_UNHEALTHY: Final = "SlurmNodeUnhealthy"
"""Type of the Node condition that the reconciler sets together with the taint."""
