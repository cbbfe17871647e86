"""Translate gangs of pods into jobs of Slurm, and back.

The job's script does nothing: the job only holds the resources that its pods use. It ends when the
bridge sends a signal. The bridge stores the gang in the administrator's comment, which users cannot
change. The variable `SPANK_SLURMSTACK_PODS` is for the prolog and epilog of each node: it shows
that pods use the job's resources. Users cannot change it in an existing job.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from agents.bridge.observed import Request
from agents.bridge.shares import share
from agents.bridge.wanted import Wanted
from agents.slurm import JobRequest

COMPLETED: Final = "USR1"
FAILED: Final = "USR2"
"""Signals that end a job."""
_SCRIPT: Final = """#!/bin/sh
# Pods of Kubernetes use the resources of this job. The bridge ends the job after its pods.
trap 'exit 0' USR1
trap 'exit 1' USR2
sleep infinity &
while :; do wait; done
"""
PREFIX: Final = "slurmstack:bridge:"
"""Begin of the administrator's comment of the bridge's jobs."""


def job_request(
    gang: str, request: Request, pods: int, excluded: frozenset[str], wanted: Wanted
) -> JobRequest:
    """Return the job of a gang with this number of pods."""
    wishes, each = request.wishes, share(request)
    alone = pods == 1
    return JobRequest(
        name=wishes.name or request.name,
        script=_SCRIPT,
        directory="/",
        output="/dev/null",
        requeue=False,
        admin_comment=comment(gang, pods),
        control_environment=("SLURMSTACK_PODS=1",),
        user_id=request.identity.uid,
        group_id=request.identity.gid,
        account=request.identity.account,
        partition=wishes.partition or wanted.partition,
        qos=wishes.qos,
        wckey=wishes.wckey,
        reservation=wishes.reservation,
        licenses=wishes.licenses,
        constraints=_constraints(wishes.constraints, wanted.feature),
        time_limit=wishes.time_limit,
        # In Slurm, only operators may set priorities.
        priority=wishes.priority if request.identity.may_set_priority else None,
        excluded_nodes=tuple(sorted(excluded)),
        exclusive=bool(wishes.exclusive),
        tasks=pods,
        cpus_per_task=each.cpus,
        nodes=1 if alone else None,
        min_nodes=None if alone else wishes.min_nodes,
        max_nodes=None if alone else wishes.max_nodes,
        memory_per_node=_memory(wishes.memory_per_node, each.memory if alone else 0),
        # A task has no memory of its own in Slurm, and it is unknown how many run on a node.
        memory_per_cpu=None
        if alone or wishes.memory_per_node or not each.memory
        else -(-each.memory // each.cpus),
        gres_per_node=_gres(wishes.gres),
        gres_per_task=f"gres/gpu:{each.gpus}" if each.gpus else None,
    )


def comment(gang: str, pods: int) -> str:
    return PREFIX + json.dumps({"gang": gang, "pods": pods})


def read_comment(text: str) -> Mapping[str, Any] | None:
    """Return `gang` and `pods` from an administrator's comment, or None for another's job."""
    if not text.startswith(PREFIX):
        return None
    try:
        found: dict[str, Any] = json.loads(text.removeprefix(PREFIX))
    except ValueError:
        return None
    return found if found.keys() >= {"gang", "pods"} else None


def _memory(wished: int | None, needed: int) -> int | None:
    """Return the MiB of each node, or None for Slurm's default or another option."""
    return max(wished or 0, needed) or None


def _constraints(wished: str | None, feature: str) -> str:
    return f"({wished})&{feature}" if wished else feature


def _gres(wished: str | None) -> str | None:
    """Return GRES in the format of Slurm's TRES: `gpu:2` is `gres/gpu:2` there."""
    if wished is None:
        return None
    return ",".join(
        one if one.startswith("gres/") else f"gres/{one.lower()}" for one in wished.split(",")
    )
