"""What the settings want of long checks, for agents/longchecks, and their jobs' partition."""

import json

from components import conventions as c
from components.settings import Nodeset, Settings
from components.slurmconf.nodes import words

_LONGEST = 60
"""Minutes that the longest check may take."""


def wanted_long_checks(settings: Settings) -> str:
    """The text of agents/longchecks' file."""
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
    """The GPUs of a node; slices are not measured."""
    gpus = nodeset.gpus
    return {"gpu_type": gpus.type, "gpus": gpus.count} if gpus and not gpus.mig else {}


def checks_partition_lines(settings: Settings) -> list[str]:
    """The line of slurm.conf of the hidden partition that their jobs are in, if there are any.

    Users' jobs, of any other partition, are looked at first, and what then runs here makes way for
    them at once. Its jobs get their nodes whole: who shared one would measure and slow down others.
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
    """PreemptType: where users' jobs make way for nobody, those of long checks still do."""
    chosen = settings.slurm.preemption.type
    return "partition_prio" if chosen == "none" and settings.long_checks.checks else chosen
