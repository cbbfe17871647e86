"""Cost differences are computed from the inputs of resources."""

from typing import Any

import pytest

from components.conventions import ANNOTATION_COST, LABEL_NODESET
from engine.values import UNKNOWN_STRING
from plans.costs import Difference, differences, number, on_demand
from plans.reading import Preview
from tests.support.documents import (
    CLAIM,
    CONFIG_MAP,
    STATEFUL_SET,
    claim,
    preview,
    stateful_set,
    step,
)
from tests.support.graph import Graph, record
from tests.support.stack import VALID, config


def amounts(plan: Preview) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    return {
        (one.what, one.name): (_side(one, "before"), _side(one, "after"))
        for one in differences(plan)
    }


def _side(one: Difference, side: str) -> str | None:
    cost = getattr(one, side)
    if cost is None:
        return None
    return "?" if cost.amount is None else f"{number(cost.amount)} {cost.unit}".strip()


# --- From this program's settings ----------------------------------------------------------------


NODESETS: list[dict[str, Any]] = [
    {"name": "cpu", "replicas": 2, "cpus": 2, "memory": "2GiB"},
    {
        "name": "gpu",
        "replicas": 2,
        "cpus": 8,
        "memory": "64GiB",
        "gpus": {"type": "h100", "count": 8},
    },
]


def between(before: Graph, after: Graph) -> Preview:
    """Return a preview of the steps from one graph to another."""
    old, new = (
        {one.urn: one for one in graph.resources if one.custom} for graph in (before, after)
    )
    steps = []
    for urn in {**old, **new}:
        sides = old.get(urn), new.get(urn)
        op = "create" if sides[0] is None else "delete" if sides[1] is None else "update"
        one = sides[1] or sides[0]
        assert one is not None
        inputs = [None if side is None else side.inputs for side in sides]
        if inputs[0] != inputs[1]:
            steps.append(step(op, one.type, one.name, *inputs))
    return preview(*steps)


def test_edited_settings_show_changed_nodes_gpus_and_volumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu, gpu = NODESETS
    given = {**VALID, "cluster": {"kind": "existing"}, "login": {}, "nodesets": NODESETS}
    edited = {
        **given,
        "nodesets": [{**cpu, "replicas": 5}, {**gpu, "replicas": 1}],
        "login": {"replicas": 3},
        "jail": {"size": "1TiB"},
    }
    before, after = (record(monkeypatch, config(base=values)) for values in (given, edited))

    assert amounts(between(before, after)) == {
        ("Slurm nodes", "cpu"): ("2", "5"),
        ("Slurm nodes", "gpu"): ("2", "1"),
        ("GPUs", "gpu"): ("16", "8"),
        ("Login nodes", "login"): ("1", "3"),
        ("Volumes", "jail-claim"): ("100 GiB", "1024 GiB"),
    }
    assert not differences(between(before, before))


def test_costs_of_nodes_on_demand_are_those_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = NODESETS[1]
    given = {**VALID, "cluster": {"kind": "existing"}, "nodesets": [{**gpu, "on_demand": {}}]}
    edited = {**given, "nodesets": [{**gpu, "replicas": 5, "on_demand": {"min": 1}}]}
    before, after = (record(monkeypatch, config(base=values)) for values in (given, edited))

    assert amounts(between(before, after)) == {
        ("Slurm nodes", "gpu"): ("2", "5"),
        ("GPUs", "gpu"): ("16", "40"),
    }
    (nodes_of_gpu, _) = differences(between(before, after))
    assert nodes_of_gpu.after is not None
    assert nodes_of_gpu.after.each.endswith(", on demand")


def test_changed_setting_ceiling_shows_the_cost_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = {**NODESETS[1], "on_demand": {"price": 24.5}}
    given = {**VALID, "cluster": {"kind": "existing"}, "nodesets": [gpu]}
    edited = {**given, "on_demand": {"ceiling": 30}}
    before, after = (record(monkeypatch, config(base=values)) for values in (given, edited))

    present, former = on_demand(between(before, after))
    assert present.startswith("nodes on demand: at most 30 an hour (ceiling; all 2 nodes of gpu ")
    assert former.startswith("before this edit: at most 49 an hour (all 2 nodes of gpu), at least")


# --- From inputs ---------------------------------------------------------------------------------


def nodes(replicas: Any, **limits: str) -> dict[str, Any]:
    return stateful_set({LABEL_NODESET: "gpu"}, replicas, limits)


def of_cost(text: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {ANNOTATION_COST: text}}}


def test_cost_of_on_demand_nodes_is_shown_even_without_changes() -> None:
    for logged in (
        "info: nodes on demand: at most 9 an hour",
        "nodes on demand: at most 9 an hour",
    ):
        unchanged = preview(logged=("fyi", f"{logged}\n"))
        assert on_demand(unchanged) == ["nodes on demand: at most 9 an hour"]
        assert not any("nodes on demand" in line for line in unchanged.output)
    assert on_demand(preview()) == []


@pytest.mark.parametrize(
    ("op", "old", "new", "expected"),
    [
        ("create", None, of_cost("at most 9"), ["nodes on demand: at most 9"]),
        ("update", {"metadata": {}}, of_cost("at most 9"), ["nodes on demand: at most 9"]),
        ("update", of_cost("at most 9"), of_cost("at most 9"), ["nodes on demand: at most 9"]),
        (
            "update",
            of_cost("at most 9"),
            of_cost("at most 5"),
            ["nodes on demand: at most 5", "before this edit: at most 9"],
        ),
        (
            "delete",
            of_cost("at most 9"),
            None,
            ["nodes on demand: no nodes with a price", "before this edit: at most 9"],
        ),
    ],
)
def test_changed_cost_of_on_demand_nodes_has_its_own_line(
    op: str, old: dict[str, Any] | None, new: dict[str, Any] | None, expected: list[str]
) -> None:
    logged = () if op == "delete" else (expected[0],)
    steps = step(op, CONFIG_MAP, "ondemand-nodesets", old, new)

    assert on_demand(preview(steps)) == expected
    assert on_demand(preview(steps, logged=logged)) == expected


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": "8"}, "16"),
        ({"amd.com/gpu": "8"}, "16"),
        ({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-2g.20gb": "1"}, "16"),
        ({"rdma/shared": "1", "cpu": "8"}, None),
    ],
)
def test_costs_include_gpus_and_slices_of_any_vendor(
    limits: dict[str, str], gpus: str | None
) -> None:
    counted = amounts(preview(step("create", STATEFUL_SET, "a", new=nodes(2, **limits))))

    assert counted.get(("GPUs", "gpu"), (None, None)) == (None, gpus)


def test_resized_nodes_are_listed_even_if_their_number_is_unchanged() -> None:
    small, large = nodes(2, cpu="2", memory="1Gi"), nodes(2, cpu="2", memory="2Gi")

    (one,) = differences(preview(step("update", STATEFUL_SET, "a", small, large)))

    assert one.more == 0
    assert one.before is not None
    assert one.after is not None
    assert (one.before.each, one.after.each) == ("2 CPUs, 1 GiB", "2 CPUs, 2 GiB")


def test_unknown_amounts_are_shown_as_unknown() -> None:
    plan = preview(
        step("update", STATEFUL_SET, "a", nodes(2), nodes(UNKNOWN_STRING)),
        step("create", CLAIM, "b", new=claim(UNKNOWN_STRING)),
    )

    assert amounts(plan) == {("Slurm nodes", "gpu"): ("2", "?"), ("Volumes", "b"): (None, "?")}
    assert all(one.more is None for one in differences(plan))


def test_costs_include_the_volume_of_each_pod_of_a_statefulset() -> None:
    template = {"metadata": {"name": "data"}, **claim("10Gi")}
    made = stateful_set({}, 3, volumeClaimTemplates=[template])

    assert amounts(preview(step("create", STATEFUL_SET, "a", new=made))) == {
        ("Volumes", "a/data"): (None, "30 GiB")
    }


def nebius(**sizes: Any) -> dict[str, Any]:
    return {"template": {"resources": {"platform": "gpu-h100-sxm", "preset": "8gpu"}}, **sizes}


def aws(desired: int, least: int, most: int) -> dict[str, Any]:
    sizes = {"desiredSize": desired, "minSize": least, "maxSize": most}
    return {"scalingConfig": sizes, "instanceTypes": ["p5.48xlarge"]}


MACHINES = [
    (
        "nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup",
        nebius(fixedNodeCount=2),
        nebius(autoscaling={"minNodeCount": 0, "maxNodeCount": 16}),
        ("2", "16"),
        "gpu-h100-sxm 8gpu, autoscaled from 0 to 16",
    ),
    ("aws:eks/nodeGroup:NodeGroup", aws(2, 2, 2), aws(4, 4, 4), ("2", "4"), "p5.48xlarge"),
    (
        "aws:eks/nodeGroup:NodeGroup",
        aws(2, 2, 2),
        aws(4, 1, 8),
        ("2", "8"),
        "p5.48xlarge, autoscaled from 1 to 8",
    ),
    (
        "aws:eks/nodeGroup:NodeGroup",
        aws(0, 0, 1),
        aws(0, 0, 8),
        ("0", "8"),
        "p5.48xlarge, autoscaled from 0 to 8",
    ),
]


@pytest.mark.parametrize(("type_", "old", "new", "counts", "each"), MACHINES)
def test_costs_include_the_maximum_number_of_autoscaled_machines(
    type_: str, old: dict[str, Any], new: dict[str, Any], counts: tuple[str, str], each: str
) -> None:
    plan = preview(step("update", type_, "group", old, new))

    assert amounts(plan) == {("Machines", "group"): counts}
    (one,) = differences(plan)
    assert one.after is not None
    assert one.after.each == each


def test_costs_include_a_node_group_only_once() -> None:
    group = step("create", "eks:index:ManagedNodeGroup", "group", None, aws(2, 2, 2))

    (one,) = differences(preview(group))

    assert (one.what, one.name) == ("Machines", "group")
    assert one.more == 2


def test_costs_include_a_metal_machine_that_joins_or_leaves() -> None:
    inputs = {"create": "…"}
    joins = step("create", "command:remote:Command", "metal-member-cpu-a", None, inputs)
    leaves = step("delete", "command:remote:Command", "metal-member-cpu-b", inputs)
    label = step("create", "command:remote:Command", "metal-node-cpu-a", None, inputs)

    assert amounts(preview(joins, leaves, label)) == {
        ("Machines", "cpu-a"): (None, "1"),
        ("Machines", "cpu-b"): ("1", None),
    }


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        (
            "nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup",
            {"template": {"bootDisk": {"sizeGibibytes": 512}}, "fixedNodeCount": 3},
        ),
        ("aws:eks/nodeGroup:NodeGroup", {**aws(3, 3, 3), "diskSize": 512}),
    ],
)
def test_costs_include_boot_disks_of_machines(type_: str, inputs: dict[str, Any]) -> None:
    assert amounts(preview(step("create", type_, "group", None, inputs))) == {
        ("Machines", "group"): (None, "3"),
        ("Boot disks", "group"): (None, "1536 GiB"),
    }


@pytest.mark.parametrize(
    ("type_", "what"),
    [
        ("nebius:index/mk8sV1Cluster:Mk8sV1Cluster", "Control planes"),
        ("aws:eks/cluster:Cluster", "Control planes"),
        ("aws:ec2/natGateway:NatGateway", "NAT gateways"),
    ],
)
def test_costs_include_control_planes_and_nat_gateways(type_: str, what: str) -> None:
    assert amounts(preview(step("create", type_, "it", None, {}))) == {(what, "it"): (None, "1")}


def test_costs_include_load_balancers_but_no_other_services() -> None:
    balanced, internal = ({"spec": {"type": kind}} for kind in ("LoadBalancer", "ClusterIP"))
    service = "kubernetes:core/v1:Service"

    assert amounts(preview(step("update", service, "login", internal, balanced))) == {
        ("Load balancers", "login"): (None, "1")
    }
    assert not amounts(preview(step("create", service, "rest", None, internal)))


def test_costs_do_not_include_a_claim_of_an_existing_volume() -> None:
    bound = claim("2Ti")
    bound["spec"]["volumeName"] = "slurm-jail"

    assert not amounts(preview(step("create", CLAIM, "jail-claim", new=bound)))


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        ("nebius:index/computeV1Filesystem:ComputeV1Filesystem", {"sizeGibibytes": 2048}),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", {"storageCapacity": 2048}),
    ],
)
def test_costs_list_cloud_file_systems_as_volumes(type_: str, inputs: dict[str, Any]) -> None:
    plan = preview(step("delete", type_, "files", inputs))

    assert amounts(plan) == {("Volumes", "files"): ("2048 GiB", None)}
