"""Render the settings of the bridge, for agents/bridge and for the nodes whose machines run pods.

A job that holds resources for pods has the variable `SPANK_SLURMSTACK_PODS` in the environment of
its prolog and epilog; see agents/bridge/jobs.py.
"""

import json
from pathlib import Path

from agents.bridge.wanted import Rule, Wanted
from components import conventions as c
from components.settings import Settings
from components.settings.bridge import Bridge, PodUser
from components.slurmconf.nodes import words
from components.slurmconf.scripts import text_of
from components.slurmconf.templates import render

_MODULE = "agents/bridge/wait.py"
_PROLOG = f"""\
#!/bin/sh
# Marks a job that holds resources for pods. Users cannot start programs in such a job.
[ "${{SPANK_SLURMSTACK_PODS:-}}" ] || exit 0
mkdir -p {c.PODS_RUN} && : >"{c.PODS_RUN}/$SLURM_JOB_ID"
"""


def wanted_bridge(settings: Settings) -> str:
    """Return the settings of agents/bridge as JSON, or "" if the stack has no bridge."""
    bridge = settings.bridge
    if bridge is None:
        return ""
    wanted = Wanted(
        scheduler=bridge.scheduler,
        namespaces=bridge.namespaces,
        default_memory=bridge.default_memory,
        partition=_partition(bridge, settings),
        feature=c.FEATURE_PODS,
        rules=bridge_rules(settings),
    )
    return json.dumps(wanted.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"


def _partition(bridge: Bridge, settings: Settings) -> str | None:
    """Return the partition of pods whose annotations name none. None: Slurm's default partition."""
    return bridge.partition or (c.PODS_PARTITION if has_pods_partition(settings) else None)


def has_pods_partition(settings: Settings) -> bool:
    """Return whether pods have a partition of their own: some nodes are in no other partition."""
    return any(nodeset.pods_only for nodeset in settings.nodesets)


def pods_partition_lines(settings: Settings) -> list[str]:
    """Return the line of slurm.conf for the partition of all nodes that run pods.

    A pod's job is in one partition. If it were in several, and could never run in one of them,
    Slurm would say that its constraints are bad while it waits for the others.
    """
    if not has_pods_partition(settings):
        return []
    nodesets = sorted(nodeset.name for nodeset in settings.nodesets if nodeset.runs_pods)
    parameters = {
        "PartitionName": c.PODS_PARTITION,
        "Nodes": ",".join(nodesets),
        "Default": False,
        "MaxTime": "UNLIMITED",
        "State": "UP",
    }
    return [words(parameters, {})]


def job_submit(settings: Settings, root: Path = Path()) -> str:
    """Return the text of job_submit.lua, which slurmctld runs for new and changed jobs.

    The text is empty if the stack needs no such script.

    Raises `SettingsError` if the site's script cannot be read.
    """
    chosen = settings.slurm.job_submit_lua
    site = text_of("slurm.job_submit_lua", chosen, root) if chosen else ""
    if not has_pods_partition(settings):
        return site
    default = next((queue.name for queue in settings.queues() if queue.default), "")
    values = {
        "site": site,
        "partition": c.PODS_PARTITION,
        "default": default,
        "slurm_id": c.SLURM_ID,
    }
    return render("job_submit.lua", values)


def bridge_rules(settings: Settings) -> tuple[Rule, ...]:
    """Return the rules by which pods act as Slurm users, with the users' ids."""
    users = settings.bridge.users if settings.bridge else ()
    return tuple(_rule(user, settings) for user in users)


def _rule(user: PodUser, settings: Settings) -> Rule:
    uids = {one.name: one.uid for one in settings.users}
    uid = uids[user.user] if user.uid is None else user.uid
    groups = sorted(settings.groups, key=lambda group: group.name)
    return Rule(
        namespace=user.namespace,
        service_account=user.service_account,
        user=user.user,
        uid=uid,
        gid=uid,
        groups={group.name: group.gid for group in groups if user.user in group.members},
        accounts=user.accounts,
        may_set_priority=user.may_set_priority,
    )


def bridge_address(settings: Settings) -> str:
    """Return the host and the port of the bridge, as arguments of agents/bridge/wait.py."""
    host = f"{c.BRIDGE}.{settings.namespace}.svc.{settings.cluster.domain}."
    return f"{host} {c.BRIDGE_PORT}"


def bridge_scripts(settings: Settings) -> dict[str, str]:
    """Return the prolog and epilog of jobs that hold resources for pods, by file name."""
    if settings.bridge is None:
        return {}
    epilog = f"""\
#!/bin/sh
# Waits until the pods of a job have stopped. Slurm then gives their resources to other jobs. If
# this script fails, Slurm drains the node, so no other job gets the resources.
set -e
[ "${{SPANK_SLURMSTACK_PODS:-}}" ] || exit 0
# An older image of the node lacks this program.
[ -e {c.PROGRAMS}/{_MODULE} ] || exit 0
PYTHONPATH={c.PROGRAMS} python3 -BS -m agents.bridge.wait {bridge_address(settings)}
rm -f "{c.PODS_RUN}/$SLURM_JOB_ID"
"""
    return {"bridge_epilog": epilog, "bridge_prolog": _PROLOG}
