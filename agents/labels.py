"""Labels, taints, conditions and annotations that the program writes and agents read."""

from typing import Final

PROJECT: Final = "slurmstack"
DOMAIN: Final = "slurmstack.dev"
NAME: Final = "app.kubernetes.io/name"
"""Kubernetes' common label for the name of an application. On slurmstack's objects, the value is
`PROJECT`."""
STACK: Final = f"{NAME}={PROJECT}"
"""Selector of all objects of a stack."""
COMPONENT: Final = f"{DOMAIN}/component"
"""Label with the component to which an object belongs."""

WORKER: Final = "worker"
"""Component of pods that are Slurm nodes."""
LOGS: Final = "logs"
"""Component of the pod that sends the daemons' logs to a log collector."""
NODE_EXPORTER: Final = "machines"
"""Component of node-exporter, one pod on each Kubernetes node."""
REBOOTER: Final = "rebooter"
"""Component of the pods that reboot their Kubernetes node."""
SNAPSHOT_OF: Final = f"{DOMAIN}/snapshot-of"
"""Label of the VolumeSnapshots that agents/snapshots makes. The value is the name of the
PersistentVolumeClaim. agents/snapshots deletes only snapshots with this label."""

POD: Final = "statefulset.kubernetes.io/pod-name"
"""Label with the pod's name. Kubernetes sets it on the pods of a StatefulSet; agents/ondemand sets
it on its pods."""
NODESET: Final = f"{DOMAIN}/nodeset"
"""Label and taint with the name of a nodeset."""
ON_DEMAND: Final = f"{DOMAIN}/on-demand"
"""Label of the pods of nodes on demand, and of their templates."""
TEMPLATE: Final = f"{DOMAIN}/template"
"""Annotation with the digest of the template, on pods of nodes on demand."""
MACHINE: Final = f"{DOMAIN}/machine"
"""Scheduling gate of the pods of nodes that keep their machines. agents/reconciler removes it."""
HOSTNAME: Final = "kubernetes.io/hostname"
"""Kubernetes' label with the name of a Kubernetes node."""

ROLL: Final = f"{DOMAIN}/roll"
"""Annotation of a nodeset's StatefulSet with the settings of its rolling updates, as JSON. In an
annotation, the settings change together with the pod template. A file in the reconciler's pod would
change later."""

REPORT: Final = f"{DOMAIN}/report"
"""Annotation of the Job that runs after a deploy. The value is the report on the nodes."""
REBOOT: Final = f"{DOMAIN}/reboot"
"""Annotation of a Kubernetes node that requests a reboot: ID of the current boot, and Unix time."""
UNHEALTHY: Final = f"{DOMAIN}/unhealthy"
"""Key of the taint of Kubernetes nodes with faulty hardware."""
CONDITION_UNHEALTHY: Final = "SlurmNodeUnhealthy"
"""Type of the Node condition that the reconciler sets together with the taint."""

BRIDGE_LEASE: Final = f"{PROJECT}-bridge"
"""Lease of the pod of agents/bridge that acts."""
JOB: Final = f"{DOMAIN}/job"
"""Label with the Slurm job that holds the resources of a pod of agents/bridge."""
BRIDGE: Final = f"{DOMAIN}/bridge"
"""Label of these pods with the namespace of the stack, because several stacks of a cluster may have
bridges. Also a finalizer of these pods: Kubernetes keeps a deleted pod until agents/bridge has seen
that all its containers have stopped.

It is also the key of a taint that keeps other pods off machines that jobs and pods share."""
