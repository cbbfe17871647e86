"""Render the wanted long checks for agents/longchecks, and the partition of their jobs."""

import json

from agents.longchecks.wanted import Chosen, Wanted
from agents.longchecks.wanted import Nodeset as WantedNodeset
from components import conventions as c
from components.settings import Nodeset, Settings
from components.slurmconf.nodes import words

_LONGEST = 60
"""Time limit of a check in minutes."""


def wanted_long_checks(settings: Settings) -> str:
    chosen = settings.long_checks
    wanted = Wanted(
        partition=c.CHECKS_PARTITION,
        user=c.CHECKS_USER,
        logs=c.CHECKS_LOGS,
        at_once=chosen.at_once,
        wait=chosen.wait,
        keep=chosen.keep,
        nodesets={
            nodeset.name: _wanted(nodeset)
            for nodeset in sorted(settings.nodesets, key=lambda nodeset: nodeset.name)
        },
        checks={
            check.name: Chosen(
                nodesets=tuple(chosen.nodesets_of(check, settings.nodesets)),
                threshold=check.threshold,
                fall=check.fall,
                history=check.history,
                least=check.least,
            )
            for check in sorted(chosen.checks, key=lambda check: check.name)
        },
    )
    return json.dumps(wanted.model_dump(exclude_unset=True), indent=1) + "\n"


def _wanted(nodeset: Nodeset) -> WantedNodeset:
    """Return a nodeset's nodes and their GPUs, without MIG slices, which checks do not measure."""
    gpus = nodeset.gpus
    if not gpus or gpus.mig:
        return WantedNodeset(replicas=nodeset.replicas)
    return WantedNodeset(replicas=nodeset.replicas, gpu_type=gpus.type, gpus=gpus.count)


def checks_partition_lines(settings: Settings) -> list[str]:
    """Return the line of slurm.conf for the hidden partition of long checks, if a check is listed.

    Users' jobs are in other partitions. Slurm considers these jobs first, and they preempt running
    checks immediately. Checks get whole nodes, because other jobs on a node would distort the
    measurement.
    """
    if not settings.long_checks.checks:
        return []
    line = words(
        {
            "PartitionName": c.CHECKS_PARTITION,
            "Nodes": ",".join(
                sorted(nodeset.name for nodeset in settings.nodesets if not nodeset.pods_only)
            ),
            "Default": False,
            "MaxTime": _LONGEST,
            "State": "UP",
            "OverSubscribe": "EXCLUSIVE",
            "PriorityTier": 0,
            "PriorityJobFactor": 0,
            "PreemptMode": "CANCEL",
            "AllowGroups": c.CHECKS_USER,
            "Hidden": True,
        },
        {},
    )
    return [line]


def preemption(settings: Settings) -> str:
    """Return PreemptType: long checks' jobs can be preempted even if users' jobs cannot."""
    chosen = settings.slurm.preemption.type
    return "partition_prio" if chosen == "none" and settings.long_checks.checks else chosen
