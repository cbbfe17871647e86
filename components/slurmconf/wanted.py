"""Settings of nodes and of the reconciler, in the format of agents/reconciler."""

import json

from components.settings import Nodeset, Settings
from components.slurmconf.nodes import node_conf

_LOOKS = 3
"""Intervals that a node may be without evidence: Slurm may have been too busy to accept it."""


def wanted_nodes(settings: Settings) -> str:
    """Render the file."""
    reconciler = settings.reconciler.model_dump(mode="json")
    for names in ("hardware", "maintenance"):
        reconciler[names] = sorted(reconciler[names])
    health = settings.health
    evidence = _LOOKS * health.interval if health.is_everywhere() else None
    nodesets = {nodeset.name: _wanted(nodeset) for nodeset in settings.nodesets}
    return (
        json.dumps(
            {**reconciler, "evidence": evidence, "nodesets": nodesets}, indent=1, sort_keys=True
        )
        + "\n"
    )


def _wanted(nodeset: Nodeset) -> dict[str, object]:
    """Return the number of nodes, and the values that Slurm's record of each must have."""
    conf = node_conf(nodeset)
    # The nodeset's free parameters override the others.
    parameters = {
        name.lower(): value for name, _, value in (w.partition("=") for w in conf.split())
    }
    gpus = nodeset.gpus
    return {
        "replicas": nodeset.replicas,
        "cpus": int(parameters["cpus"]),
        "memory": int(parameters["realmemory"]),
        "gpus": sum(gpus.kubernetes_resources().values()) if gpus else 0,
        "conf": conf if nodeset.kind == "dynamic" else "",
    }
