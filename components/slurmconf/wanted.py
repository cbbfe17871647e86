"""What the settings want of nodes and of the reconciler, as agents/reconciler reads it."""

import json

from components.settings import Nodeset, Settings
from components.slurmconf.nodes import node_conf

_LOOKS = 3
"""How many intervals a node may go without evidence: Slurm may have been too busy to take it."""


def wanted_nodes(settings: Settings) -> str:
    """The file's text."""
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
    """How many nodes, and how Slurm's record of each must show it."""
    conf = node_conf(nodeset)
    # Its free parameters have the last word.
    said = {name.lower(): value for name, _, value in (w.partition("=") for w in conf.split())}
    gpus = nodeset.gpus
    return {
        "replicas": nodeset.replicas,
        "cpus": int(said["cpus"]),
        "memory": int(said["realmemory"]),
        "gpus": sum(gpus.kubernetes_resources().values()) if gpus else 0,
        "conf": conf if nodeset.kind == "dynamic" else "",
    }
