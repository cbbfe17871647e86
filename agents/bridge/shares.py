"""Distribute the pods of a gang over the nodes of their job."""

from collections.abc import Sequence

from agents.bridge import quantities
from agents.bridge.observed import Job, Pod, Request, Share
from agents.bridge.size import GPUS, largest

_LEAST_MEMORY = 16
"""MiB that the processes of the job itself need: a shell and its child."""


def places(
    job: Job, bound: Sequence[tuple[Pod, str]], unbound: Sequence[Pod]
) -> list[tuple[Pod, str]] | None:
    """Return a node for each unbound pod, or None if the job's nodes have too little for all.

    `bound` contains pods that already use a part of the job, each with its node.
    """
    left = dict(job.shares)
    for pod, taken in bound:
        if pod.request and taken in left:
            left[taken] = _without(left[taken], share(pod.request))
    found = []
    for pod in unbound:
        if pod.request is None:
            return None
        wanted = share(pod.request)
        node = next((name for name, one in sorted(left.items()) if _holds(one, wanted)), None)
        if node is None:
            return None
        left[node] = _without(left[node], wanted)
        found.append((pod, node))
    return found


def share(request: Request) -> Share:
    """Return what one pod of a gang needs from Slurm: what it may use, and at least one CPU."""
    size, wishes = largest((request.size, request.limits)), request.wishes
    cpus = quantities.whole(size.get("cpu", quantities.NOTHING))
    memory = quantities.mebibytes(size.get("memory", quantities.NOTHING))
    return Share(
        # An annotation alone must not make the job smaller than its pod.
        cpus=max(1, cpus, wishes.cpus_per_task or 0),
        memory=max(memory, _LEAST_MEMORY) if memory else 0,
        gpus=sum(quantities.whole(size.get(name, quantities.NOTHING)) for name in GPUS),
    )


def _holds(one: Share, wanted: Share) -> bool:
    return one.cpus >= wanted.cpus and one.memory >= wanted.memory and one.gpus >= wanted.gpus


def _without(one: Share, other: Share) -> Share:
    return Share(one.cpus - other.cpus, one.memory - other.memory, one.gpus - other.gpus)
