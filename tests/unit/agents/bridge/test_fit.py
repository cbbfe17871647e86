from decimal import Decimal
from typing import Any

import pytest

from agents.bridge.fit import Machine, why_full, why_never, why_unsupported
from agents.bridge.podspec import Taint
from tests.unit.agents.bridge.things import spec

LABELS = {"pool": "gpu", "disk": "ssd", "generation": "7"}


def machine(*taints: Taint, is_cordoned: bool = False) -> Machine:
    return Machine("m-0", LABELS, taints, is_cordoned, {}, {})


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: {"nodeSelectorTerms": list(terms)}}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"nodeSelector": {"pool": "gpu"}},
        required(label("pool", "In", "cpu", "gpu")),
        required(label("pool", "NotIn", "cpu")),
        required(label("zone", "NotIn", "a")),
        required(label("disk", "Exists")),
        required(label("zone", "DoesNotExist")),
        required(label("generation", "Gt", "6")),
        required(label("generation", "Lt", "8")),
        required(label("pool", "In", "cpu"), label("disk", "In", "ssd")),
        required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m-0"]}]}),
    ],
)
def test_pod_may_run_on_a_machine_that_it_selects(content: dict[str, Any]) -> None:
    assert why_never(spec(content), machine()) == ""


@pytest.mark.parametrize(
    "content",
    [
        {"nodeSelector": {"pool": "gpu", "zone": "a"}},
        required(label("pool", "In", "cpu")),
        required(label("pool", "NotIn", "gpu")),
        required(label("zone", "Exists")),
        required(label("disk", "DoesNotExist")),
        required(label("generation", "Gt", "7")),
        required(label("pool", "Gt", "7")),
        required({}),
        required(
            {
                "matchExpressions": [
                    {"key": "pool", "operator": "In", "values": ["gpu"]},
                    {"key": "disk", "operator": "In", "values": ["hdd"]},
                ]
            }
        ),
        required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m-1"]}]}),
    ],
)
def test_pod_may_not_run_on_a_machine_that_it_does_not_select(content: dict[str, Any]) -> None:
    assert why_never(spec(content), machine()) != ""


TAINT = Taint("dedicated", "NoSchedule", "lab")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "value": "lab"}, True),
        ({"key": "dedicated", "value": "lab", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "value": "other"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "lab"}, False),
    ],
)
def test_pod_needs_a_toleration_for_each_taint(
    toleration: dict[str, Any], is_tolerated: bool
) -> None:
    why = why_never(spec({"tolerations": [toleration]}), machine(TAINT))

    assert (why == "") == is_tolerated


def test_taint_that_only_prefers_other_machines_does_not_keep_a_pod_out() -> None:
    assert why_never(spec(), machine(Taint("old", "PreferNoSchedule"))) == ""


def test_cordoned_machine_gets_only_pods_that_tolerate_it() -> None:
    tolerant = {"tolerations": [{"operator": "Exists"}]}

    assert "unschedulable" in why_never(spec(), machine(is_cordoned=True))
    assert why_never(spec(tolerant), machine(is_cordoned=True)) == ""


def test_too_large_a_pod_names_the_resource_that_is_short() -> None:
    left = {"cpu": Decimal("1.5"), "memory": Decimal(2**30)}

    assert why_full({"cpu": Decimal("1.5")}, left) == ""
    assert "'cpu'" in why_full({"cpu": Decimal(2)}, left)
    assert "'nvidia.com/gpu'" in why_full({"nvidia.com/gpu": Decimal(1)}, left)


@pytest.mark.parametrize(
    "content",
    [
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_pod_whose_wishes_slurm_cannot_honour_is_refused(content: dict[str, Any]) -> None:
    assert "which Slurm cannot honour; remove it" in why_unsupported(spec(content))


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
    ],
)
def test_preferences_are_ignored(content: dict[str, Any]) -> None:
    assert why_unsupported(spec(content)) == ""
