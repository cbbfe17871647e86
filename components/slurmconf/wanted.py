"""Render the settings of nodes and of the reconciler for agents/reconciler."""

import json

from agents.reconciler.wanted import Nodeset as WantedNodeset
from agents.reconciler.wanted import Topology, Wanted
from components.settings import Nodeset, Settings
from components.slurmconf.nodes import node_conf

_LOOKS = 3
"""Number of intervals after which a node's last report is too old. The number is above 1, because a
busy slurmctld can miss reports."""


def wanted_nodes(settings: Settings) -> str:
    health = settings.health
    wanted = Wanted(
        **settings.reconciler.model_dump(exclude={"replace_secret", "replace_servers"}),
        evidence=_LOOKS * health.interval if health.is_everywhere() else None,
        nodesets={nodeset.name: _wanted(nodeset) for nodeset in settings.nodesets},
        topology=_topology(settings),
    )
    content = wanted.model_dump(mode="json")
    for names in ("hardware", "maintenance"):
        content[names] = sorted(content[names])
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _topology(settings: Settings) -> Topology | None:
    topology = settings.slurm.topology
    if topology.kind == "none" or not topology.labels:
        return None
    return Topology(kind=topology.kind, levels=topology.levels(), block_sizes=topology.block_sizes)


def _wanted(nodeset: Nodeset) -> WantedNodeset:
    """Return the number of nodes, and the values that Slurm must report for each node."""
    conf = node_conf(nodeset)
    # `conf` includes the nodeset's `parameters`, which override the other settings.
    parameters = {
        name.lower(): value for name, _, value in (w.partition("=") for w in conf.split())
    }
    gpus = nodeset.gpus
    return WantedNodeset(
        replicas=nodeset.replicas,
        cpus=int(parameters["cpus"]),
        memory=int(parameters["realmemory"]),
        gpus=sum(gpus.kubernetes_resources().values()) if gpus else 0,
        conf=conf if nodeset.kind == "dynamic" else "",
        on_demand=nodeset.on_demand is not None,
        keep_machine=nodeset.keep_machine,
    )
