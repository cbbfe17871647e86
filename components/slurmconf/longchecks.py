"""Wanted long checks, in the format of agents/longchecks, and their jobs' partition."""

import json

from components import conventions as c
from components.settings import Nodeset, Settings
from components.slurmconf.nodes import words

_LONGEST = 60
"""Time limit of a check in minutes."""


def wanted_long_checks(settings: Settings) -> str:
    """Render the file of agents/longchecks."""
    chosen = settings.long_checks
    content = {
        "partition": c.CHECKS_PARTITION,
        "user": c.CHECKS_USER,
        "logs": c.CHECKS_LOGS,
        "at_once": chosen.at_once,
        "wait": chosen.wait,
        "keep": chosen.keep,
        "nodesets": {
            nodeset.name: {"replicas": nodeset.replicas, **_gpus(nodeset)}
            for nodeset in sorted(settings.nodesets, key=lambda nodeset: nodeset.name)
        },
        "checks": {
            check.name: {
                "nodesets": chosen.nodesets_of(check, settings.nodesets),
                "threshold": check.threshold,
                "fall": check.fall,
                "history": check.history,
                "least": check.least,
            }
            for check in sorted(chosen.checks, key=lambda check: check.name)
        },
    }
    return json.dumps(content, indent=1) + "\n"


def _gpus(nodeset: Nodeset) -> dict[str, object]:
    """Return the GPUs of a node; slices are not measured."""
    gpus = nodeset.gpus
    return {"gpu_type": gpus.type, "gpus": gpus.count} if gpus and not gpus.mig else {}


def checks_partition_lines(settings: Settings) -> list[str]:
    """Return the line of slurm.conf for the hidden partition of long checks, if there are any.

    Slurm considers users' jobs, in all other partitions, first, and they preempt running checks at
    once. Checks get whole nodes: on a shared node, they would measure and slow down other jobs.
    """
    if not settings.long_checks.checks:
        return []
    line = words(
        {
            "PartitionName": c.CHECKS_PARTITION,
            "Nodes": ",".join(sorted(nodeset.name for nodeset in settings.nodesets)),
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
    """Return PreemptType: jobs of long checks can be preempted even if users' jobs cannot."""
    chosen = settings.slurm.preemption.type
    return "partition_prio" if chosen == "none" and settings.long_checks.checks else chosen
