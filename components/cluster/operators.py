"""Charts that GPUs and fast networks need, with the values for a stack's nodesets.

Values are named as in the charts' own values.yaml: NVIDIA/gpu-operator, Mellanox/network-operator
and ROCm/k8s-device-plugin.
"""

import json
from collections.abc import Iterator
from typing import Final

import yaml

from components import conventions as c
from components.cluster.classes import mig_name
from components.cluster.interface import EVERYWHERE, Chart, Cluster
from components.pods import Spec
from components.settings import Gpus, Nodeset, Settings
from components.settings.nodesets import AMD, NVIDIA

RDMA_RESOURCE: Final = "rdma/hca"
"""What Kubernetes calls the InfiniBand cards of a machine, which the network operator shares out:
a pod that asks for one gets them all."""
NETWORK_NAMESPACE: Final = "network-operator"
MIG_CONFIG_MAP: Final = "slurmstack-mig"
_NVIDIA_CHARTS: Final = "https://helm.ngc.nvidia.com/nvidia"
_AMD_CHARTS: Final = "https://rocm.github.io/k8s-device-plugin/"
_IMAGES: Final = "nvcr.io/nvidia/mellanox"
_OFED: Final = "doca3.2.0-25.10-1.2.8.0-2"
"""Driver of the network cards, of the same release as the chart."""
_MELLANOX: Final = "15b3"
"""PCI vendor id."""
_PODS: Final = 63
"""Pods that may share a machine's cards; one is all that there is for each node."""


def charts(settings: Settings, cluster: Cluster) -> Iterator[Chart]:
    """The operators that a stack's nodesets need; none where it has no GPUs."""
    if not settings.installs_operators():
        return
    vendors = settings.gpu_vendors()
    if NVIDIA in vendors:
        yield _gpu_operator(settings, shares_cards(cluster))
    if shares_cards(cluster):
        yield _network_operator(settings)
    if AMD in vendors:
        yield _amd_device_plugin(settings)


def shares_cards(cluster: Cluster) -> bool:
    """Whether there are pods that ask for InfiniBand cards."""
    return any(RDMA_RESOURCE in machines.resources for machines in cluster.node_classes.values())


def _gpu_operator(settings: Settings, infiniband: bool) -> Chart:
    chosen = settings.operators.driver
    driver = not settings.cluster.brings_driver if chosen is None else chosen
    return Chart(
        name="gpu-operator",
        namespace=c.GPU_NAMESPACE,
        repository=_NVIDIA_CHARTS,
        version=settings.operators.gpu_version,
        values={
            "driver": {
                "enabled": driver,
                # So that GPUs reach the cards by themselves.
                "rdma": {"enabled": driver and infiniband},
                # No job ends for a newer driver: machines get it when they are made anew.
                "upgradePolicy": {"autoUpgrade": False},
            },
            "toolkit": {"enabled": driver},
            "devicePlugin": {"enabled": True},
            "dcgmExporter": {"enabled": True},
            # Slices have resources of their own, as `gpus.mig` names them.
            "mig": {"strategy": "mixed"},
            "migManager": _mig_manager(settings),
            "daemonsets": {"tolerations": [EVERYWHERE]},
            "node-feature-discovery": {"worker": {"tolerations": [EVERYWHERE]}},
        },
    )


def _mig_manager(settings: Settings) -> Spec:
    if not sliced(settings):
        return {"enabled": False}
    return {"enabled": True, "config": {"name": MIG_CONFIG_MAP, "default": "all-disabled"}}


def sliced(settings: Settings) -> list[tuple[Nodeset, Gpus]]:
    """Nodesets whose GPUs are cut in slices by what the stack installs."""
    if not settings.installs_operators():
        return []
    found = [(nodeset, nodeset.gpus) for nodeset in settings.nodesets if nodeset.gpus]
    return [(nodeset, gpus) for nodeset, gpus in found if gpus.mig]


def mig_config(settings: Settings) -> str:
    """How the MIG manager slices the GPUs of each nodeset (mig-parted's file format)."""
    layouts: dict[str, list[Spec]] = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    for nodeset, gpus in sliced(settings):
        slices = {profile: count // gpus.count for profile, count in gpus.mig.items()}
        layouts[mig_name(nodeset)] = [
            {"devices": "all", "mig-enabled": True, "mig-devices": slices}
        ]
    return yaml.safe_dump({"version": "v1", "mig-configs": layouts}, sort_keys=True)


def _network_operator(settings: Settings) -> Chart:
    return Chart(
        name="network-operator",
        namespace=NETWORK_NAMESPACE,
        repository=_NVIDIA_CHARTS,
        version=settings.operators.network_version,
        values={
            # The GPU operator has it too, and one is enough.
            "nfd": {"enabled": False, "deployNodeFeatureRules": True},
            "sriovNetworkOperator": {"enabled": False},
            "maintenanceOperator": {"enabled": False},
            "operator": {"tolerations": [EVERYWHERE]},
        },
    )


def nic_policy(settings: Settings) -> Spec:
    """Spec of the NicClusterPolicy: the cards' driver, and the plugin that shares them out."""
    prefix, _, name = RDMA_RESOURCE.partition("/")
    shared = {
        "resourcePrefix": prefix,
        "resourceName": name,
        "rdmaHcaMax": _PODS,
        "selectors": {"vendors": [_MELLANOX], "linkTypes": ["infiniband"]},
    }
    return {
        "ofedDriver": {"repository": _IMAGES, "image": "doca-driver", "version": _OFED},
        "rdmaSharedDevicePlugin": {
            "repository": _IMAGES,
            "image": "k8s-rdma-shared-dev-plugin",
            "version": f"network-operator-v{settings.operators.network_version}",
            "config": json.dumps({"configList": [shared]}, sort_keys=True),
        },
        "tolerations": [EVERYWHERE],
    }


def _amd_device_plugin(settings: Settings) -> Chart:
    return Chart(
        name="amd-gpu",
        namespace="kube-system",
        repository=_AMD_CHARTS,
        version=settings.operators.amd_version,
        values={
            # NVIDIA's operator brings the discovery of devices as well.
            "nfd": {"enabled": NVIDIA not in settings.gpu_vendors()},
            "labeller": {"enabled": True},
            "tolerations": [EVERYWHERE],
        },
    )
