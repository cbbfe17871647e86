"""Helm charts for GPUs and fast networks, with the values for a stack's nodesets.

For the meaning of the values, see values.yaml of each chart in the repositories
NVIDIA/gpu-operator, Mellanox/network-operator and ROCm/k8s-device-plugin.
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
"""Kubernetes resource for a machine's InfiniBand cards. Pods share the cards: a pod that requests
one share can use all of them."""
NETWORK_NAMESPACE: Final = "network-operator"
MIG_CONFIG_MAP: Final = "slurmstack-mig"
_NVIDIA_CHARTS: Final = "https://helm.ngc.nvidia.com/nvidia"
_AMD_CHARTS: Final = "https://rocm.github.io/k8s-device-plugin/"
_IMAGES: Final = "nvcr.io/nvidia/mellanox"
_OFED: Final = "doca3.2.0-25.10-1.2.8.0-2"
"""Version of the network cards' driver, from the same release as the chart network-operator."""
_MELLANOX: Final = "15b3"
"""PCI vendor id of Mellanox."""
_PODS: Final = 63
"""Maximum number of pods that share a machine's cards. A pod requests one share."""


def charts(settings: Settings, cluster: Cluster) -> Iterator[Chart]:
    """Yield the charts that a stack's nodesets require. Nodesets without GPUs require no charts."""
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
    """Return whether any pods request InfiniBand cards."""
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
                # Let GPUs access the network cards directly.
                "rdma": {"enabled": driver and infiniband},
                # An upgrade would end jobs, so only new machines get a newer driver.
                "upgradePolicy": {"autoUpgrade": False},
            },
            "toolkit": {"enabled": driver},
            "devicePlugin": {"enabled": True},
            "dcgmExporter": {"enabled": True},
            # With `mixed`, each kind of MIG slice is a separate Kubernetes resource, with the
            # slice's name from the setting `gpus.mig`.
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
    """Return each nodeset with MIG slices, and its GPUs. The list is empty without operators."""
    if not settings.installs_operators():
        return []
    found = [(nodeset, nodeset.gpus) for nodeset in settings.nodesets if nodeset.gpus]
    return [(nodeset, gpus) for nodeset, gpus in found if gpus.mig]


def mig_config(settings: Settings) -> str:
    """Render the MIG manager's layouts of each nodeset's GPUs (mig-parted's file format)."""
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
            # Turn node-feature-discovery off here: NVIDIA's GPU operator already installs it.
            "nfd": {"enabled": False, "deployNodeFeatureRules": True},
            "sriovNetworkOperator": {"enabled": False},
            "maintenanceOperator": {"enabled": False},
            "operator": {"tolerations": [EVERYWHERE]},
        },
    )


def nic_policy(settings: Settings) -> Spec:
    """Return the spec of the NicClusterPolicy: the cards' driver and the sharing plugin."""
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
            # Turn node-feature-discovery off here if NVIDIA's operator already installs it.
            "nfd": {"enabled": NVIDIA not in settings.gpu_vendors()},
            "labeller": {"enabled": True},
            "tolerations": [EVERYWHERE],
        },
    )
