"""Tests of a stack's resources in a cloud: machines, networks and file systems.

These tests are skipped if the SDK of the cloud is not installed.
"""

import functools
import ipaddress
import json
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from components import cluster as clusters
from components import conventions as c
from components.settings import SettingsError, from_config
from components.settings.clusters import KINDS
from components.settings.clusters.machines import CloudCluster
from engine.values import changed_paths
from tests.support.clouds import (
    CLOUDS,
    EKS,
    METAL,
    NEBIUS,
    Change,
    Values,
    both,
    cluster,
    machines,
    nodeset,
    top,
)
from tests.support.graph import (
    SECRET_SIGNATURE,
    Graph,
    Registration,
    before,
    record,
    record_cluster,
)
from tests.support.stack import VALID, config
from tests.unit.components import sdk

GraphOf = Callable[..., Graph]
AMD = {"type": "v520", "count": 4, "resource": "amd.com/gpu"}
SLICED = {"type": "h100", "count": 8, "mig": {"1g.10gb": 56}}


def as_it_is(values: Values) -> None:
    """Change nothing."""


def without_gpus(values: Values) -> None:
    """Remove all nodesets except the CPU nodeset."""
    values["nodesets"] = values["nodesets"][1:]
    del values["cluster"]["machines"]["gpu"]


@pytest.fixture(scope="module")
def graph_of() -> Iterator[GraphOf]:
    """Return a function that records the program's resources, once for each variant."""
    graphs: dict[str, Graph] = {}
    with pytest.MonkeyPatch.context() as monkeypatch:

        def graph_of(base: Values, edit: Change = as_it_is) -> Graph:
            kind = base["cluster"]["kind"]
            if kind in CLOUDS:
                pytest.importorskip(f"pulumi_{kind}", reason=f"pip install '.[{kind}]'")
            values = deepcopy(base)
            edit(values)
            key = repr(values)
            if key not in graphs:
                graphs[key] = record(monkeypatch, config(base=values))
            return graphs[key]

        yield graph_of


@pytest.fixture(scope="module")
def cluster_graph_of() -> GraphOf:
    """Return a function that records only the resources of the cluster. This takes less time than
    to record all resources."""

    @functools.cache
    def recorded(values: str) -> Graph:
        settings = from_config(config(base=json.loads(values)))

        return record_cluster(settings)

    def cluster_graph_of(base: Values, edit: Change = as_it_is) -> Graph:
        kind = base["cluster"]["kind"]
        pytest.importorskip(f"pulumi_{kind}", reason=f"pip install '.[{kind}]'")
        values = deepcopy(base)
        edit(values)
        return recorded(json.dumps(values))

    return cluster_graph_of


def of_clouds(graph: Graph) -> list[Registration]:
    return [r for r in graph.resources if r.type.partition(":")[0] in ("aws", "eks", "nebius")]


def names(graph: Graph) -> set[str]:
    return {resource.name for resource in graph.resources}


def slurmd(graph: Graph, name: str) -> dict[str, Any]:
    """Return the pod spec of a nodeset."""
    spec: dict[str, Any] = graph.one(f"nodeset-{name}-slurmd").inputs["spec"]["template"]["spec"]
    return spec


def test_tests_cover_every_cloud() -> None:
    assert set(CLOUDS) == {kind for kind in KINDS if issubclass(KINDS[kind], CloudCluster)}


# --- Types of the SDKs ----------------------------------------------------------------------------

SHAPES: dict[str, tuple[Values, Change]] = {
    "Nebius": (NEBIUS, as_it_is),
    "Nebius, autoscaled spot machines": (
        NEBIUS,
        machines("gpu", spot=True, disk="1TiB", autoscaling={"min": 1, "max": 8}),
    ),
    "Nebius, an existing subnet": (NEBIUS, cluster(subnet="vpcsubnet-e00lab")),
    "Nebius, a login node without a public address": (
        NEBIUS,
        top(login={"service": "ClusterIP"}),
    ),
    "EKS on Lustre": (EKS, as_it_is),
    "EKS on EFS": (EKS, cluster(file_system="efs")),
    "EKS, autoscaled spot machines": (
        EKS,
        machines("cpu", spot=True, autoscaling={"max": 8}),
    ),
    "EKS without workers": (
        EKS,
        both(top(nodesets=[]), cluster(machines={})),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_inputs_of_cloud_resources_match_the_sdk_types(
    cluster_graph_of: GraphOf, shape: str
) -> None:
    base, edit = SHAPES[shape]
    asked = [r for r in of_clouds(cluster_graph_of(base, edit)) if not r.type.startswith("pulumi:")]

    assert asked
    assert [problem for resource in asked for problem in sdk.problems(resource)] == []


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("template", "resource"), {}, "template.resource: is not known"),
        (("fixedNodeCount",), "two", "fixedNodeCount: 'two': expected"),
        (("template", "bootDisk", "type"), "SSD", "bootDisk.type: SSD: expected one of"),
        (("template", "taints"), [{"key": "a", "value": "b"}], "taints[0].effect: is required"),
        (("template", "filesystems"), {}, "template.filesystems: {}: expected"),
        (("name",), 5, "name: 5: expected"),
    ],
)
def test_check_reports_inputs_that_contradict_a_cloud_sdk(
    cluster_graph_of: GraphOf, path: tuple[str, ...], value: object, problem: str
) -> None:
    group = deepcopy(cluster_graph_of(NEBIUS).one("nebius-group-gpu"))
    *way, last = path
    place = group.inputs
    for part in way:
        place = place[part]
    place[last] = value

    (found,) = sdk.problems(group)
    assert problem in found


SCHEMALESS = ("cilium.io", "mellanox.com")
"""API groups of objects that a chart defines. No SDK has types for these objects."""
OBJECTS: dict[str, tuple[Values, Change]] = {
    "Nebius": (NEBIUS, as_it_is),
    "EKS on Lustre": (EKS, as_it_is),
    "EKS on EFS": (EKS, cluster(file_system="efs")),
    "local": (VALID, as_it_is),
}


@pytest.mark.parametrize("shape", OBJECTS)
def test_kubernetes_objects_match_the_sdk_types(graph_of: GraphOf, shape: str) -> None:
    objects = [r for r in graph_of(*OBJECTS[shape]).resources if r.type.startswith("kubernetes:")]
    typed = [r for r in objects if not any(group in r.type for group in SCHEMALESS)]

    assert typed
    assert [problem for resource in typed for problem in sdk.problems(resource)] == []


@pytest.mark.parametrize(
    ("name", "path", "value", "problem"),
    [
        ("jail-volume", ("spec", "csi", "volumeAttribute"), {}, "volumeAttribute: is not known"),
        ("jail-volume", ("spec", "csi", "driver"), 5, "spec.csi.driver: 5: expected"),
        ("jail-volume", ("kind",), "PersistentVolumeClaim", "kind: 'PersistentVolumeClaim'"),
        ("equipment-class-slurmstack", ("allowVolumeExpansion",), "yes", "'yes': expected"),
        ("equipment-gpu-operator", ("atomic",), "yes", "atomic: 'yes': expected"),
        ("controller-service", ("spec", "ports"), [{"name": "a"}], "ports[0].port: is required"),
    ],
)
def test_check_reports_inputs_that_contradict_the_kubernetes_sdk(
    graph_of: GraphOf, name: str, path: tuple[str, ...], value: object, problem: str
) -> None:
    resource = deepcopy(graph_of(EKS).one(name))
    *way, last = path
    place = resource.inputs
    for part in way:
        place = place[part]
    place[last] = value

    (found,) = sdk.problems(resource)
    assert problem in found


# --- The graph -----------------------------------------------------------------------------------


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_every_cloud_resource_is_a_child_of_the_cloud_component(
    cluster_graph_of: GraphOf, base: Values
) -> None:
    graph = cluster_graph_of(base)
    kind = base["cluster"]["kind"]

    for resource in of_clouds(graph):
        assert resource.parent.endswith(f"::{kind}"), resource.name
    registered = {urn.rsplit("::", 1)[1] for urn in graph.outputs_registered}
    assert {kind, "equipment"} <= registered


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
@pytest.mark.parametrize("protect", [True, False])
def test_kubernetes_cluster_and_file_system_are_protected_by_default(
    cluster_graph_of: GraphOf, base: Values, protect: bool
) -> None:
    found = of_clouds(cluster_graph_of(base, top(protect_data=protect)))

    kept = {resource.type for resource in found if resource.protect}
    holds_data = {
        *("nebius:index/mk8sV1Cluster:Mk8sV1Cluster", "eks:index:Cluster"),
        "nebius:index/computeV1Filesystem:ComputeV1Filesystem",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
    }
    expected = {resource.type for resource in found if resource.type in holds_data}
    assert len(expected) == 2
    assert kept == (expected if protect else set())


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_kubernetes_provider_uses_a_kubeconfig_without_credentials(
    graph_of: GraphOf, base: Values
) -> None:
    graph = graph_of(base)
    (provider,) = graph.of_type("pulumi:providers:kubernetes")
    kind = base["cluster"]["kind"]

    sources = {urn.rsplit("::", 1)[1] for urn in provider.property_dependencies["kubeconfig"]}
    assert sources == {f"{kind}-kubernetes"}
    assert SECRET_SIGNATURE not in json.dumps(provider.inputs)
    for resource in graph.resources:
        if resource.type.startswith("kubernetes:"):
            assert resource.provider.split("::")[-2] == "kubernetes", resource.name


def test_nebius_kubeconfig_gets_tokens_from_the_nebius_command(
    cluster_graph_of: GraphOf,
) -> None:
    (provider,) = cluster_graph_of(NEBIUS).of_type("pulumi:providers:kubernetes")
    kubeconfig = json.loads(provider.inputs["kubeconfig"])

    (user,) = kubeconfig["users"]
    assert user["user"]["exec"]["command"] == "nebius"
    (entry,) = kubeconfig["clusters"]
    assert entry["cluster"]["server"] == "https://192.0.2.9:443"
    assert kubeconfig["current-context"] == entry["name"]


def test_all_aws_resources_use_one_provider_with_the_region(cluster_graph_of: GraphOf) -> None:
    graph = cluster_graph_of(EKS)
    (provider,) = graph.of_type("pulumi:providers:aws")

    assert provider.inputs["region"] == "eu-central-1"
    for resource in of_clouds(graph):
        if resource.custom:
            assert resource.provider.split("::")[-2] == "aws", resource.name
        else:
            assert resource.providers["aws"].split("::")[-2] == "aws", resource.name


def test_nebius_resources_belong_to_the_project(cluster_graph_of: GraphOf) -> None:
    for resource in of_clouds(cluster_graph_of(NEBIUS)):
        group = resource.type.endswith("NodeGroup")
        owner = "nebius-kubernetes-id" if group else "project-e00lab"
        assert resource.inputs["parentId"] == owner, resource.name


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_slurm_is_created_after_node_groups_and_storage_drivers(
    graph_of: GraphOf, base: Values
) -> None:
    graph = graph_of(base)
    kind = base["cluster"]["kind"]
    first = before(graph, "namespace")

    assert f"{kind}-group-system" in first
    drivers = {
        "nebius": {"equipment-csi-mounted-fs-path"},
        "eks": {"equipment-class-slurmstack", "eks-aws-ebs-csi-driver", "eks-aws-fsx-csi-driver"},
    }
    assert drivers[kind] <= first


def chained(values: Values) -> None:
    """Chain Cilium to Amazon's VPC CNI."""
    values["network"] = {"cilium": {"chained": "aws-cni"}}


def test_eks_creates_cilium_after_machines_and_before_other_charts(
    graph_of: GraphOf,
) -> None:
    graph = graph_of(EKS, both(chained, cluster(file_system="efs")))

    assert {"eks-group-system", "eks-aws-ebs-csi-driver"} <= before(graph, "cilium-release")
    installed = [name for name in names(graph) if name.startswith("equipment-")]
    assert {"equipment-gpu-operator", "equipment-class-slurmstack-shared"} <= {*installed}
    for name in installed:
        assert "cilium-release" in before(graph, name), name
    for resource in of_clouds(graph):
        assert "cilium-release" not in before(graph, resource.name), (
            "resources of the cloud must not wait for Cilium"
        )
    assert installed[0] in before(graph, "namespace")


def test_eks_machines_are_created_after_their_policies_and_routes(
    cluster_graph_of: GraphOf,
) -> None:
    first = before(cluster_graph_of(EKS), "eks-group-gpu")

    assert {"eks-machines-AmazonEKSWorkerNodePolicy", "eks-private-route-eu-central-1a"} <= first
    assert "eks-nat" in first


def test_kubernetes_api_accepts_only_networks_from_the_settings(
    cluster_graph_of: GraphOf,
) -> None:
    nebius = cluster_graph_of(NEBIUS).one("nebius-kubernetes").inputs["controlPlane"]["endpoints"]
    amazon = cluster_graph_of(EKS).one("eks-kubernetes").inputs

    assert nebius["publicEndpoint"]["allowedCidrs"] == ["192.0.2.0/24"]
    assert amazon["publicAccessCidrs"] == ["192.0.2.0/24"]


# --- Machines and the nodes on them --------------------------------------------------------------


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_each_nodeset_and_all_other_pods_have_separate_node_groups(
    graph_of: GraphOf, base: Values
) -> None:
    graph = graph_of(base)
    kind = base["cluster"]["kind"]

    groups = {r.name for r in of_clouds(graph) if "NodeGroup" in r.type}
    assert groups == {f"{kind}-group-{name}" for name in ("system", "gpu", "cpu")}
    for name in ("gpu", "cpu"):
        pod = slurmd(graph, name)
        assert pod["nodeSelector"][c.LABEL_NODESET] == name
        own = {"key": c.LABEL_NODESET, "operator": "Equal", "value": name, "effect": "NoSchedule"}
        assert own in pod["tolerations"]


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_node_groups_have_labels_and_taints_that_pods_expect(
    graph_of: GraphOf, base: Values
) -> None:
    graph = graph_of(base)
    group = graph.one(f"{base['cluster']['kind']}-group-gpu").inputs
    template = group.get("template", group)
    labels = template.get("metadata", template)["labels"]
    set_by_operators = {"nvidia.com/gpu.present"}

    pod = slurmd(graph, "gpu")
    missing = set(pod["nodeSelector"].items()) - set(labels.items())
    assert {key for key, _ in missing} == set_by_operators
    tolerated = {(one.get("key"), one.get("value")) for one in pod["tolerations"]}
    assert {(taint["key"], taint["value"]) for taint in template["taints"]} <= tolerated


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_reconciler_may_mark_only_machines_of_nodesets(graph_of: GraphOf, base: Values) -> None:
    spec = graph_of(base).one("reconciler-limits").inputs["spec"]
    expressions = {one["name"]: one["expression"] for one in spec["variables"]}

    for one in base["nodesets"]:
        label = json.dumps({c.LABEL_NODESET: one["name"]})
        assert label in expressions["is_ours"].partition(".exists(")[0]


@pytest.mark.parametrize("kind", ["on-demand", "block"])
def test_reserved_machines_on_eks_come_from_a_launch_template(
    cluster_graph_of: GraphOf, kind: str
) -> None:
    def reserve(values: Values) -> None:
        reserved = {"id": "cr-0123456789abcdef0", "kind": kind}
        values["cluster"]["machines"]["gpu"]["reservation"] = reserved

    graph = cluster_graph_of(EKS, reserve)

    template, group = graph.one("eks-template-gpu"), graph.one("eks-group-gpu")
    problems = [*sdk.problems(template), *sdk.problems(group)]
    # Accept CAPACITY_BLOCK. EKS requires this value (source: EKS documentation, managed node groups
    # with Capacity Blocks), but the SDK's documentation does not list it.
    assert [each for each in problems if "CAPACITY_BLOCK" not in each] == []
    assert template.inputs["instanceType"] == EKS["cluster"]["machines"]["gpu"]["type"]
    assert len(template.inputs["networkInterfaces"]) == EKS["cluster"]["machines"]["gpu"]["efa"]
    assert ("instanceMarketOptions" in template.inputs) == (kind == "block")
    assert group.inputs["launchTemplate"]["id"] == "eks-template-gpu-id"
    assert not {"diskSize", "enableEfaSupport", "instanceTypes"} & group.inputs.keys()


def test_nodes_request_the_rdma_or_efa_devices_of_their_machines(graph_of: GraphOf) -> None:
    def limits(base: Values, name: str) -> dict[str, str]:
        (container,) = slurmd(graph_of(base), name)["containers"]
        found: dict[str, str] = container["resources"]["limits"]
        return found

    assert limits(NEBIUS, "gpu")["rdma/hca"] == "1"
    assert limits(EKS, "gpu")["vpc.amazonaws.com/efa"] == "32"
    for base in (NEBIUS, EKS):
        assert set(limits(base, "cpu")) == {"cpu", "memory"}


def test_nodesets_on_one_fabric_share_a_gpu_cluster(cluster_graph_of: GraphOf) -> None:
    def more(values: Values) -> None:
        values["nodesets"].append({**values["nodesets"][0], "name": "more"})
        values["cluster"]["machines"]["more"] = values["cluster"]["machines"]["gpu"]

    graph = cluster_graph_of(NEBIUS, more)

    (joined,) = graph.of_type("nebius:index/computeV1GpuCluster:ComputeV1GpuCluster")
    assert joined.inputs["infinibandFabric"] == "fabric-6"
    for name in ("gpu", "more"):
        template = graph.one(f"nebius-group-{name}").inputs["template"]
        assert template["gpuCluster"] == {"id": "nebius-fabric-6-id"}
    assert "gpuCluster" not in graph.one("nebius-group-cpu").inputs["template"]


def test_drain_timeout_of_a_machine_covers_its_pods_grace_period(graph_of: GraphOf) -> None:
    group = graph_of(NEBIUS, nodeset("gpu", drain_grace=7200)).one("nebius-group-gpu").inputs
    seconds = int(group["strategy"]["drainTimeout"].removesuffix("s"))
    pod = slurmd(graph_of(NEBIUS, nodeset("gpu", drain_grace=7200)), "gpu")

    assert seconds >= pod["terminationGracePeriodSeconds"] > 7200


# --- Edits ---------------------------------------------------------------------------------------

RESIZED, ROLLED, REPLACED, UPDATED = "resized", "rolled", "replaced", "updated"
NEW_ONES = "for new machines"
GROUP_EFFECTS: dict[str, dict[str, str]] = {
    # Nebius: after a change of the template, the strategy replaces machines one by one. Labels and
    # taints are an exception: only new machines get them (the SDK's Mk8sV1NodeGroupTemplateArgs).
    "nebius": {
        "autoscaling": RESIZED,
        "fixedNodeCount": RESIZED,
        "strategy": UPDATED,
        "template.metadata": NEW_ONES,
        "template.taints": NEW_ONES,
        "template": ROLLED,
    },
    # EKS: for a managed node group, the API call UpdateNodegroupConfig changes only the first four
    # properties in place.
    "eks": {
        "ignoreScalingChanges": UPDATED,
        "labels": UPDATED,
        "scalingConfig": RESIZED,
        "taints": UPDATED,
        "amiType": REPLACED,
        "capacityType": REPLACED,
        "diskSize": REPLACED,
        "enableEfaSupport": REPLACED,
        "instanceTypes": REPLACED,
        "placementGroupAvailabilityZone": REPLACED,
        "subnetIds": REPLACED,
    },
}
"""For each kind of cluster: the properties of a node group, and what a change of the property does
to the group. The name `template` also matches parts of the template, such as `template.taints`. If
several names match a changed property, the longest name decides."""
FIXED: dict[str, set[str]] = {
    # Amazon: the API accepts these properties only when it creates the resource (API calls
    # CreateVpc, CreateSubnet, CreateNatGateway, CreateFileSystem, CreateCluster). Nebius: no such
    # property is known.
    "aws:ec2/vpc:Vpc": {"cidrBlock"},
    "aws:ec2/subnet:Subnet": {"availabilityZone", "cidrBlock"},
    "aws:ec2/natGateway:NatGateway": {"subnetId"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {"deploymentType", "subnetIds"},
    "eks:index:Cluster": {"name"},
}
"""Other types of resources, each with the properties that cannot change in place. A change of such
a property replaces the resource."""
ORDER = (REPLACED, ROLLED, RESIZED, NEW_ONES, UPDATED)
NOTHING: dict[str, str] = {}
BIGGER = {"platform": "gpu-h200-sxm", "fabric": None}
AUTOSCALING = {"min": 0, "max": 8}
TO_MACHINES = dict.fromkeys(
    ("eks-lustre-to-machines-988", "eks-lustre-to-machines-1018"), "deleted"
)
ELSEWHERE = {"size": "1TiB", "storage_class": "shared"}
OF_THE_PROJECT = {
    f"nebius-{name}" for name in ("fabric-6", "files", "kubernetes", "login", "network", "subnet")
}


def zones(letters: str) -> Change:
    """Set the zones of the region, in this order."""
    return cluster(zones=[f"eu-central-1{letter}" for letter in letters])


def with_zones(letters: str) -> Values:
    """Return a stack on EKS in these zones."""
    values = deepcopy(EKS)
    zones(letters)(values)
    return values


def parts_in(letter: str) -> set[str]:
    """Return the names of an EKS zone's network resources."""
    return {
        f"eks-{kind}{part}-eu-central-1{letter}"
        for kind in ("public", "private")
        for part in ("", "-route")
    }


def subnets_in(letter: str) -> set[str]:
    """Return the names of an EKS zone's subnets."""
    return {part for part in parts_in(letter) if "-route-" not in part}


def driver(files: str, policy: str, becomes: str) -> dict[str, str]:
    """Return the effect `becomes` on the CSI driver of an Amazon file system, and on the driver's
    role."""
    name = f"eks-aws-{files}-csi-driver"
    return dict.fromkeys((name, f"{name}-role", f"{name}-{policy}"), becomes)


def zone(letter: str, becomes: str) -> dict[str, str]:
    """Return the effect `becomes` on the network resources of a zone. The EKS cluster also changes,
    because it lists the zones."""
    return {**dict.fromkeys(parts_in(letter), becomes), "eks-kubernetes": "changed"}


EDITS: list[tuple[str, Values, Change, dict[str, str], dict[str, str]]] = [
    # Each row: name, stack, edit, expected effect on node groups, expected effect on other
    # resources of the cloud.
    ("more nodes", NEBIUS, nodeset("gpu", replicas=4), {"gpu": RESIZED}, {}),
    ("fewer nodes", NEBIUS, nodeset("cpu", replicas=1), {"cpu": RESIZED}, {}),
    ("no nodes", NEBIUS, nodeset("cpu", replicas=0), {"cpu": RESIZED}, {}),
    ("autoscaled machines", NEBIUS, machines("cpu", autoscaling=AUTOSCALING), {"cpu": RESIZED}, {}),
    ("more machines outside nodesets", NEBIUS, cluster(system={"replicas": 3}),
     {"system": RESIZED}, {}),
    ("larger machines outside nodesets", NEBIUS, cluster(system={"preset": "32vcpu-128gb"}),
     {"system": ROLLED}, {}),
    ("another machine platform", NEBIUS, machines("gpu", **BIGGER), {"gpu": ROLLED},
     {"nebius-fabric-6": "deleted"}),
    ("another machine size", NEBIUS, machines("cpu", preset="32vcpu-128gb"), {"cpu": ROLLED}, {}),
    ("a larger disk", NEBIUS, machines("cpu", disk="512GiB"), {"cpu": ROLLED}, {}),
    ("spot machines", NEBIUS, machines("cpu", spot=True), {"cpu": ROLLED}, {}),
    ("another fabric", NEBIUS, machines("gpu", fabric="fabric-4"), {"gpu": ROLLED},
     {"nebius-fabric-6": "deleted", "nebius-fabric-4": "created"}),
    ("no fabric", NEBIUS, machines("gpu", fabric=None), {"gpu": ROLLED},
     {"nebius-fabric-6": "deleted"}),
    ("a longer drain grace", NEBIUS, nodeset("gpu", drain_grace=9000), {"gpu": UPDATED}, {}),
    ("GPUs with MIG slices", NEBIUS, nodeset("gpu", gpus=SLICED), {"gpu": NEW_ONES}, {}),
    ("fewer CPUs for Slurm", NEBIUS, nodeset("gpu", cpus=100), NOTHING, {}),
    ("less memory for Slurm", NEBIUS, nodeset("gpu", memory="1TiB"), NOTHING, {}),
    ("another GPU type in Slurm", NEBIUS, nodeset("gpu", gpus={"type": "sxm", "count": 8}),
     NOTHING, {}),
    ("a feature in Slurm", NEBIUS, nodeset("gpu", features=["fast"]), NOTHING, {}),
    ("a node selector for pods", NEBIUS, nodeset("cpu", node_selector={"a": "b"}), NOTHING, {}),
    ("a larger jail", NEBIUS, top(jail={"size": "4800GiB"}), NOTHING, {"nebius-files": "changed"}),
    ("another network for the API", NEBIUS, cluster(api_from=["192.0.2.0/24", "198.51.100.0/24"]),
     NOTHING, {"nebius-kubernetes": "changed"}),
    ("a newer Kubernetes", NEBIUS, cluster(version="1.34"), NOTHING,
     {"nebius-kubernetes": "changed"}),
    ("no public address for login nodes", NEBIUS, top(login={"service": "ClusterIP"}), NOTHING,
     {"nebius-login": "deleted"}),
    ("nodesets in another order", NEBIUS, lambda values: values["nodesets"].reverse(), NOTHING, {}),
    ("all GPUs removed", NEBIUS, without_gpus, NOTHING,
     {"nebius-group-gpu": "deleted", "nebius-fabric-6": "deleted"}),
    ("more nodes", EKS, nodeset("gpu", replicas=4), {"gpu": RESIZED}, {}),
    ("fewer nodes", EKS, nodeset("cpu", replicas=1), {"cpu": RESIZED}, {}),
    ("no nodes", EKS, nodeset("cpu", replicas=0), {"cpu": RESIZED}, {}),
    ("autoscaled machines", EKS, machines("cpu", autoscaling=AUTOSCALING), {"cpu": RESIZED}, {}),
    ("another machine type", EKS, machines("cpu", type="c7i.16xlarge"), {"cpu": REPLACED}, {}),
    ("a larger disk", EKS, machines("cpu", disk="512GiB"), {"cpu": REPLACED}, {}),
    ("spot machines", EKS, machines("cpu", spot=True), {"cpu": REPLACED}, {}),
    ("GPUs of another vendor", EKS,
     both(nodeset("gpu", gpus=AMD, cpus=60), machines("gpu", type="g4ad.16xlarge", efa=None)),
     {"gpu": REPLACED}, {}),
    ("GPUs with MIG slices", EKS, nodeset("gpu", gpus=SLICED), {"gpu": UPDATED}, {}),
    ("fewer CPUs for Slurm", EKS, nodeset("gpu", cpus=100), NOTHING, {}),
    ("a longer drain grace", EKS, nodeset("gpu", drain_grace=9000), NOTHING, {}),
    ("a larger jail", EKS, top(jail={"size": "4800GiB"}), NOTHING, {"eks-lustre": "changed"}),
    ("a faster jail", EKS, cluster(throughput=500), NOTHING, {"eks-lustre": "changed"}),
    ("a newer Kubernetes", EKS, cluster(version="1.34"), NOTHING, {"eks-kubernetes": "changed"}),
    ("an additional zone", EKS, zones("abc"), {"system": REPLACED}, zone("c", "created")),
    ("an additional zone between two others", with_zones("ac"), zones("abc"), {"system": REPLACED},
     zone("b", "created")),
    ("a zone removed", with_zones("abc"), zones("ac"), {"system": REPLACED}, zone("b", "deleted")),
    ("zones in another order", with_zones("abc"), zones("acb"), NOTHING, {}),
    ("another first zone", EKS, zones("ba"), {"cpu": REPLACED, "gpu": REPLACED},
     {"eks-nat": REPLACED, "eks-lustre": REPLACED}),
    ("another network", EKS, cluster(network="10.1.0.0/16"), NOTHING,
     {"eks-vpc": REPLACED,
      **dict.fromkeys(subnets_in("a") | subnets_in("b"), REPLACED)}),
    ("EFS in place of Lustre", EKS, cluster(file_system="efs"), NOTHING,
     {"eks-lustre": "deleted", **TO_MACHINES, "eks-files": "changed",
      "eks-efs": "created", "eks-efs-policy": "created",
      "eks-efs-eu-central-1a": "created", "eks-efs-eu-central-1b": "created",
      **driver("fsx", "AmazonFSxFullAccess", "deleted"),
      **driver("efs", "AmazonEFSCSIDriverPolicy", "created")}),
    ("a jail with another storage class", EKS, top(jail=ELSEWHERE), NOTHING,
     {"eks-lustre": "deleted", **TO_MACHINES, "eks-files": "deleted",
      **driver("fsx", "AmazonFSxFullAccess", "deleted")}),
    ("another project", NEBIUS, cluster(project="project-e00other"), NOTHING,
     dict.fromkeys(OF_THE_PROJECT, "changed")),
    ("an existing subnet", NEBIUS, cluster(subnet="vpcsubnet-e00"), NOTHING,
     {"nebius-network": "deleted", "nebius-subnet": "deleted",
      "nebius-kubernetes": "changed", "nebius-login": "changed"}),
    ("another type of file system", NEBIUS, cluster(file_system_type="WEKA"), NOTHING,
     {"nebius-files": "changed"}),
    ("a jail with another storage class", NEBIUS, top(jail={**ELSEWHERE, "size": "2400GiB"}),
     NOTHING, {}),
]  # fmt: skip


def to_groups(kind: str, given: Graph, after: Graph) -> dict[str, str]:
    """Return what an edit does to each node group that exists before and after the edit."""
    found = {}
    for old in of_clouds(given):
        if "NodeGroup" not in old.type or old.name not in names(after):
            continue
        changed = changed_paths(old.inputs, after.one(old.name).inputs)
        if changed:
            kinds = {becomes(kind, ".".join(map(str, path))) for path in changed}
            found[old.name.removeprefix(f"{kind}-group-")] = min(kinds, key=ORDER.index)
    return found


def becomes(kind: str, path: str) -> str:
    """Return what a change of the property at `path` does to a node group."""
    matching = [name for name in GROUP_EFFECTS[kind] if f"{path}.".startswith(f"{name}.")]
    return GROUP_EFFECTS[kind][max(matching, key=len)]


def to_others(given: Graph, after: Graph) -> dict[str, str]:
    """Return what an edit does to each other resource of the cloud."""
    old = {r.name: r for r in of_clouds(given)}
    new = {r.name: r for r in of_clouds(after)}
    gone = dict.fromkeys(old.keys() - new.keys(), "deleted")
    come = dict.fromkeys(new.keys() - old.keys(), "created")
    same = (name for name in old.keys() & new.keys() if "-group-" not in name)
    changed = (name for name in same if old[name].inputs != new[name].inputs)
    return gone | come | {name: to_other(old[name], new[name]) for name in changed}


def to_other(old: Registration, new: Registration) -> str:
    """Return what an edit does to one resource other than a node group."""
    changed = {str(path[0]) for path in changed_paths(old.inputs, new.inputs)}
    return REPLACED if changed & FIXED.get(old.type, set()) else "changed"


@pytest.mark.parametrize(
    ("base", "edit", "groups", "others"),
    [edit[1:] for edit in EDITS],
    ids=[f"{edit[1]['cluster']['kind']}: {edit[0]}" for edit in EDITS],
)
def test_edit_changes_exactly_the_expected_cloud_resources(
    cluster_graph_of: GraphOf,
    base: Values,
    edit: Change,
    groups: dict[str, str],
    others: dict[str, str],
) -> None:
    given, after = cluster_graph_of(base), cluster_graph_of(base, edit)

    assert to_groups(base["cluster"]["kind"], given, after) == groups
    assert to_others(given, after) == others


def test_subnets_do_not_overlap_and_lie_inside_the_network(cluster_graph_of: GraphOf) -> None:
    subnets = cluster_graph_of(with_zones("hbad")).of_type("aws:ec2/subnet:Subnet")
    blocks = [ipaddress.IPv4Network(one.inputs["cidrBlock"]) for one in subnets]

    assert len(blocks) == len(set(blocks)) == 8
    assert all(block.subnet_of(ipaddress.IPv4Network("10.0.0.0/16")) for block in blocks)


def test_nat_gateway_is_deleted_before_its_replacement_is_created(
    cluster_graph_of: GraphOf,
) -> None:
    """The new gateway needs the address that the old gateway frees."""
    assert cluster_graph_of(EKS).one("eks-nat").deleted_first


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
@pytest.mark.parametrize("replicas", [0, 40])
def test_edit_of_replicas_resizes_the_node_group_and_the_statefulset(
    graph_of: GraphOf, base: Values, replicas: int
) -> None:
    graph = graph_of(base, nodeset("cpu", replicas=replicas))
    group = graph.one(f"{base['cluster']['kind']}-group-cpu").inputs

    assert graph.one("nodeset-cpu-slurmd").inputs["spec"]["replicas"] == replicas
    scaling = group.get("scalingConfig", {"desiredSize": group.get("fixedNodeCount")})
    assert scaling["desiredSize"] == replicas
    assert scaling.get("maxSize", 1) >= 1, "EKS requires a maximum of at least 1"


def test_with_autoscaling_the_cloud_sets_the_number_of_machines(
    cluster_graph_of: GraphOf,
) -> None:
    edit = machines("cpu", autoscaling={"min": 1, "max": 8})
    nebius = cluster_graph_of(NEBIUS, edit).one("nebius-group-cpu").inputs
    amazon = cluster_graph_of(EKS, edit).one("eks-group-cpu").inputs

    assert nebius["autoscaling"] == {"minNodeCount": 1, "maxNodeCount": 8}
    assert "fixedNodeCount" not in nebius
    assert amazon["scalingConfig"] == {"desiredSize": 4, "minSize": 1, "maxSize": 8}
    assert amazon["ignoreScalingChanges"] is True


@pytest.mark.parametrize(("name", "least"), [("cpu", 0), ("gpu", 1)])
def test_machines_of_nodes_on_demand_are_autoscaled(
    cluster_graph_of: GraphOf, name: str, least: int
) -> None:
    edit = nodeset(name, on_demand={}, kind="static", replicas=6)
    nebius = cluster_graph_of(NEBIUS, edit).one(f"nebius-group-{name}").inputs
    amazon = cluster_graph_of(EKS, edit).one(f"eks-group-{name}").inputs

    assert nebius["autoscaling"] == {"minNodeCount": least, "maxNodeCount": 6}
    assert amazon["scalingConfig"] == {"desiredSize": least, "minSize": least, "maxSize": 6}
    assert amazon["ignoreScalingChanges"] is True


def test_only_one_cni_enforces_network_policies_on_eks(cluster_graph_of: GraphOf) -> None:
    def options(edit: Change) -> dict[str, Any]:
        found: dict[str, Any] = (
            cluster_graph_of(EKS, edit).one("eks-kubernetes").inputs["vpcCniOptions"]
        )
        return found

    assert options(as_it_is) == {"enableNetworkPolicy": True}
    chained = options(lambda values: values.update(network={"cilium": {"chained": "aws-cni"}}))
    assert chained == {"enableNetworkPolicy": False}, (
        "the VPC CNI must not enforce policies that Cilium enforces"
    )


# --- The shared file system ----------------------------------------------------------------------


def test_nebius_jail_is_on_a_file_system_shared_by_machines(graph_of: GraphOf) -> None:
    graph = graph_of(NEBIUS)
    files = graph.one("nebius-files").inputs
    volume = graph.one("jail-volume").inputs["spec"]

    assert files["sizeGibibytes"] == 2400
    path = volume["hostPath"]["path"]
    assert volume["hostPath"]["type"] == "Directory"
    for group in graph.of_type("nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup"):
        (mounted,) = group.inputs["template"]["filesystems"]
        assert mounted["existingFilesystem"] == {"id": "nebius-files-id"}
        script = yaml.safe_load(group.inputs["template"]["cloudInitUserData"])["runcmd"]
        # The machine must create the folder only after a successful mount: if the mount fails, the
        # folder must not exist.
        (made,) = [line[2] for line in script if path in str(line)]
        assert made == f"mount {path.rpartition('/')[0]} && mkdir -p {path}"


def test_eks_jail_is_a_lustre_or_efs_volume(graph_of: GraphOf) -> None:
    def volume(edit: Change) -> dict[str, Any]:
        found: dict[str, Any] = graph_of(EKS, edit).one("jail-volume").inputs["spec"]
        return found

    lustre, efs = volume(as_it_is), volume(cluster(file_system="efs"))
    assert lustre["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "eks-lustre-id",
        "volumeAttributes": {"dnsname": "fs.lab", "mountname": "m"},
    }
    assert efs["csi"] == {"driver": "efs.csi.aws.com", "volumeHandle": "eks-efs-id"}
    assert efs["mountOptions"] == ["tls", "iam"]
    assert {"eks-efs-eu-central-1a", "eks-efs-eu-central-1b", "eks-efs-policy"} <= before(
        graph_of(EKS, cluster(file_system="efs")), "jail-volume"
    ), "the file system cannot be mounted without its mount targets and policy"


@pytest.mark.parametrize("file_system", ["efs", "lustre"])
def test_eks_file_systems_accept_only_the_security_group_of_machines(
    cluster_graph_of: GraphOf, file_system: str
) -> None:
    rules = (
        cluster_graph_of(EKS, cluster(file_system=file_system)).one("eks-files").inputs["ingress"]
    )

    sources = {"cidrBlocks", "ipv6CidrBlocks", "prefixListIds", "securityGroups"}
    for rule in rules:
        assert sources & rule.keys() == {"securityGroups"}
        assert rule["securityGroups"] == ["sg-machines"]
        assert rule["self"] is (file_system == "lustre"), "Lustre's servers connect to each other"


def test_efs_accepts_only_the_role_of_machines_over_tls(cluster_graph_of: GraphOf) -> None:
    graph = cluster_graph_of(EKS, cluster(file_system="efs"))
    policy = json.loads(graph.one("eks-efs-policy").inputs["policy"])

    by_effect = {statement["Effect"]: statement for statement in policy["Statement"]}
    assert by_effect.keys() == {"Allow", "Deny"}
    allowed, denied = by_effect["Allow"], by_effect["Deny"]
    assert allowed["Principal"] == {"AWS": "arn:aws:iam::1:role/r"}
    assert denied["Principal"] == {"AWS": "*"}
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert set(allowed["Action"]) == set(denied["Action"])
    shared = graph.one("equipment-class-slurmstack-shared").inputs
    assert shared["mountOptions"] == ["tls", "iam"]


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_larger_jail_keeps_its_volume_and_claim_unchanged(graph_of: GraphOf, base: Values) -> None:
    given, after = graph_of(base), graph_of(base, top(jail={"size": "4800GiB"}))

    for name in ("jail-volume", "jail-claim"):
        assert given.one(name).inputs == after.one(name).inputs


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_cloud_stack_may_put_the_jail_on_an_existing_claim(graph_of: GraphOf, base: Values) -> None:
    graph = graph_of(base, top(jail={"claim": "homes"}))

    assert "jail-volume" not in names(graph)


def test_standby_controller_uses_a_shared_storage_class(graph_of: GraphOf) -> None:
    standby = top(controller={"standby": True})
    classes = {
        "csi-mounted-fs-path-sc": graph_of(NEBIUS, standby),
        "slurmstack-shared": graph_of(EKS, both(standby, cluster(file_system="efs"))),
    }
    for storage_class, graph in classes.items():
        assert graph.one("controller-state").inputs["spec"]["storageClassName"] == storage_class


# --- Operators -----------------------------------------------------------------------------------


def charts(graph: Graph) -> dict[str, dict[str, Any]]:
    return {r.inputs["name"]: r.inputs for r in graph.of_type("kubernetes:helm.sh/v3:Release")}


EXISTING = {
    **VALID,
    "cluster": {"kind": "existing", "kubeconfig": "lab.yaml"},
    "login": {"service": "ClusterIP"},
    "nodesets": NEBIUS["nodesets"],
}
OPERATORS = {"amd-gpu", "gpu-operator", "network-operator"}


@pytest.mark.parametrize(
    ("base", "edit", "expected"),
    [
        (NEBIUS, as_it_is, {"gpu-operator", "network-operator"}),
        (NEBIUS, machines("gpu", fabric=None), {"gpu-operator"}),
        (NEBIUS, without_gpus, set()),
        (NEBIUS, top(operators={"install": False}), set()),
        (EKS, as_it_is, {"gpu-operator"}),
        (
            EKS,
            both(
                nodeset("gpu", gpus=AMD, cpus=60), machines("gpu", type="g4ad.16xlarge", efa=None)
            ),
            {"amd-gpu"},
        ),
        (EXISTING, as_it_is, set()),
        (EXISTING, top(operators={"install": True}), {"gpu-operator"}),
        (
            EXISTING,
            both(top(operators={"install": True}), nodeset("gpu", features=["infiniband"])),
            {"gpu-operator"},
        ),
        (EXISTING, both(top(operators={"install": True}), nodeset("gpu", gpus=AMD)), {"amd-gpu"}),
        (VALID, top(operators={"install": True}), set()),
    ],
)
def test_stack_installs_only_operators_for_the_gpus_that_it_has(
    graph_of: GraphOf, base: Values, edit: Change, expected: set[str]
) -> None:
    graph = graph_of(base, edit)

    assert set(charts(graph)) & OPERATORS == expected
    labels = [
        key
        for nodeset in graph.of_type("kubernetes:apps/v1:StatefulSet")
        for key in nodeset.inputs["spec"]["template"]["spec"].get("nodeSelector", {})
        if key.startswith("nvidia.com/")
    ]
    assert bool(labels) == ("gpu-operator" in expected), (
        "pods select a label of the GPU operator, so they wait for the operator"
    )
    scraped = yaml.safe_load(graph.one("monitoring-config").inputs["data"]["prometheus.yml"])
    dcgm = [job for job in scraped["scrape_configs"] if job["job_name"] == "dcgm"]
    assert bool(dcgm) == ("gpu-operator" in expected), "Prometheus scrapes the operator's DCGM"
    if dcgm:
        assert "equipment-gpu-operator" in before(graph, "monitoring-dcgm-role")


@pytest.mark.parametrize("base", CLOUDS.values(), ids=CLOUDS)
def test_every_chart_has_a_pinned_version_and_a_repository(
    cluster_graph_of: GraphOf, base: Values
) -> None:
    for name, chart in charts(cluster_graph_of(base)).items():
        assert chart["version"], name
        repository = chart.get("repositoryOpts", {}).get("repo", chart["chart"])
        assert repository.startswith(("https://", "oci://")), name


def test_gpu_operator_installs_the_driver_only_where_images_lack_it(
    cluster_graph_of: GraphOf,
) -> None:
    bare = charts(cluster_graph_of(NEBIUS))["gpu-operator"]["values"]
    ready = charts(cluster_graph_of(EKS))["gpu-operator"]["values"]
    chosen = charts(cluster_graph_of(EKS, top(operators={"driver": True})))["gpu-operator"][
        "values"
    ]

    assert (bare["driver"]["enabled"], bare["toolkit"]["enabled"]) == (True, True)
    assert (ready["driver"]["enabled"], ready["toolkit"]["enabled"]) == (False, False)
    assert (chosen["driver"]["enabled"], chosen["toolkit"]["enabled"]) == (True, True)


def test_nodes_wait_until_their_gpus_have_the_mig_layout(graph_of: GraphOf) -> None:
    graph = graph_of(NEBIUS, nodeset("gpu", gpus=SLICED))
    layouts = yaml.safe_load(graph.one("equipment-mig").inputs["data"]["config.yaml"])

    labels = graph.one("nebius-group-gpu").inputs["template"]["metadata"]["labels"]
    (layout,) = layouts["mig-configs"][labels["nvidia.com/mig.config"]]
    assert layout["mig-devices"] == {"1g.10gb": 7}, (
        "each of the eight GPUs has seven of the 56 slices"
    )
    assert slurmd(graph, "gpu")["nodeSelector"]["nvidia.com/mig.config.state"] == "success"
    manager = charts(graph)["gpu-operator"]["values"]["migManager"]
    assert manager["config"]["name"] == graph.one("equipment-mig").inputs["metadata"]["name"]


def test_pods_request_the_resource_that_the_rdma_plugin_offers(
    graph_of: GraphOf,
) -> None:
    graph = graph_of(NEBIUS)
    policy = graph.one("equipment-nics").inputs["spec"]["rdmaSharedDevicePlugin"]

    (shared,) = json.loads(policy["config"])["configList"]
    asked = f"{shared['resourcePrefix']}/{shared['resourceName']}"
    assert asked in slurmd(graph, "gpu")["containers"][0]["resources"]["limits"]
    assert charts(graph)["network-operator"]["version"] in policy["version"]
    assert "equipment-network-operator" in before(graph, "equipment-nics")
    assert "equipment-gpu-operator" in before(graph, "equipment-network-operator"), (
        "the GPU operator defines kinds that the network operator uses"
    )


# --- Missing SDKs --------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [*CLOUDS.values(), METAL], ids=[*CLOUDS, "metal"])
def test_missing_sdk_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, base: Values) -> None:
    kind = base["cluster"]["kind"]
    for module in [name for name in sys.modules if name.startswith(f"components.cluster.{kind}")]:
        monkeypatch.delitem(sys.modules, module)
    for package in ("pulumi_aws", "pulumi_command", "pulumi_eks", "pulumi_nebius"):
        monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(SettingsError) as caught:
        clusters.make(from_config(config(base=base)), "test")

    assert str(caught.value).endswith(f"is not installed; run `pip install '.[{kind}]'`")
    assert str(caught.value).startswith(f"slurmstack:cluster.kind: '{kind}': pulumi_")


def test_stacks_outside_clouds_import_no_cloud_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pulumi_aws", "pulumi_command", "pulumi_eks", "pulumi_nebius"):
        monkeypatch.setitem(sys.modules, package, None)

    assert "controller-slurmctld" in names(record(monkeypatch, anew=True))
