"""Labels and taints of a nodeset's machines."""

from collections.abc import Mapping

from components.cluster.interface import NodeClass, own_machines
from components.settings import Nodeset, Settings
from components.settings.nodesets import NVIDIA

MIG_CONFIG = "nvidia.com/mig.config"
"""Label with the name of the MIG layout that NVIDIA's MIG manager applies to a machine's GPUs."""


def mig_name(nodeset: Nodeset) -> str:
    """Return the name that the nodeset's layout of GPU slices has in the MIG manager's
    configuration."""
    return f"slurmstack-{nodeset.name}"


def machine_labels(nodeset: Nodeset, settings: Settings) -> dict[str, str]:
    """Return the labels that a nodeset's machines have from their creation."""
    slices = nodeset.gpus.mig if nodeset.gpus else {}
    sliced = {MIG_CONFIG: mig_name(nodeset)} if slices and settings.installs_operators() else {}
    return {**own_machines(nodeset), **sliced}


def machine_taints(nodeset: Nodeset) -> list[dict[str, str]]:
    """Return the taints that repel other pods from a nodeset's machines, in the clouds' format."""
    return [
        {"key": key, "value": value, "effect": "NO_SCHEDULE"}
        for key, value in own_machines(nodeset).items()
    ]


def node_class(nodeset: Nodeset, settings: Settings, resources: Mapping[str, str]) -> NodeClass:
    """Return the labels, taints and resources that the pods of a nodeset need to run on the
    machines that are reserved for this nodeset.

    The labels include those that a machine gets when its GPUs are ready. Pods select machines by
    these labels, so each pod waits until a machine's GPUs are ready.
    """
    return NodeClass(
        labels={**own_machines(nodeset), **ready_labels(nodeset, settings)},
        taints=own_machines(nodeset),
        resources=resources,
    )


def ready_labels(nodeset: Nodeset, settings: Settings) -> dict[str, str]:
    """Return the labels that NVIDIA's operator sets on a machine once its GPUs are ready."""
    gpus = nodeset.gpus
    if gpus is None or gpus.vendor() != NVIDIA or not settings.installs_operators():
        return {}
    return {
        "nvidia.com/gpu.present": "true",
        **({"nvidia.com/mig.config.state": "success"} if gpus.mig else {}),
    }
