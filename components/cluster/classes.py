"""Labels of machines, and what the pods of a nodeset ask of them."""

from collections.abc import Mapping

from components.cluster.interface import NodeClass, own_machines
from components.settings import Nodeset, Settings
from components.settings.nodesets import NVIDIA

MIG_CONFIG = "nvidia.com/mig.config"
"""Label by which NVIDIA's MIG manager is told how to slice a machine's GPUs."""


def mig_name(nodeset: Nodeset) -> str:
    """Name of the nodeset's way to slice, among those that the MIG manager knows."""
    return f"slurmstack-{nodeset.name}"


def machine_labels(nodeset: Nodeset, settings: Settings) -> dict[str, str]:
    """What machines of a nodeset are labelled with from the first."""
    slices = nodeset.gpus.mig if nodeset.gpus else {}
    sliced = {MIG_CONFIG: mig_name(nodeset)} if slices and settings.installs_operators() else {}
    return {**own_machines(nodeset), **sliced}


def machine_taints(nodeset: Nodeset) -> list[dict[str, str]]:
    """What keeps everybody else's pods off machines of a nodeset, as both clouds write it."""
    return [
        {"key": key, "value": value, "effect": "NO_SCHEDULE"}
        for key, value in own_machines(nodeset).items()
    ]


def node_class(nodeset: Nodeset, settings: Settings, resources: Mapping[str, str]) -> NodeClass:
    """Machines that are a nodeset's own, once they have what their GPUs need."""
    return NodeClass(
        labels={**own_machines(nodeset), **ready_labels(nodeset, settings)},
        taints=own_machines(nodeset),
        resources=resources,
    )


def ready_labels(nodeset: Nodeset, settings: Settings) -> dict[str, str]:
    """Labels that the operators set where a nodeset's GPUs can be used."""
    gpus = nodeset.gpus
    if gpus is None or gpus.vendor() != NVIDIA or not settings.installs_operators():
        return {}
    return {
        "nvidia.com/gpu.present": "true",
        **({"nvidia.com/mig.config.state": "success"} if gpus.mig else {}),
    }
