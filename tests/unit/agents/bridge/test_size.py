from decimal import Decimal
from typing import Any

import pytest

from agents.bridge import quantities
from agents.bridge.size import PODS, allowed, requested
from tests.unit.agents.bridge.things import spec


def container(**requests: Any) -> dict[str, Any]:
    return {"name": "one", "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", Decimal("0.5")),
        ("2", Decimal(2)),
        (0.1, Decimal("0.1")),
        ("1.5Gi", Decimal(1536 * 2**20)),
        ("100M", Decimal(100_000_000)),
        ("1e3", Decimal(1000)),
        ("12E2", Decimal(1200)),
        ("3E", Decimal(3 * 10**18)),
        ("100n", Decimal("1e-7")),
    ],
)
def test_quantity_is_read_with_its_unit(text: str | float, number: Decimal) -> None:
    assert quantities.parse(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1GiB", "1.2.3", "two", "1kk"])
def test_error_about_a_quantity_names_its_value(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}': expected a quantity"):
        quantities.parse(text)


def test_cpus_and_memory_are_rounded_up() -> None:
    assert quantities.whole(quantities.parse("1100m")) == 2
    assert quantities.mebibytes(quantities.parse("1000001k")) == 954


@pytest.mark.parametrize(
    ("content", "cpu"),
    [
        ({"containers": [container(cpu="1"), container(cpu="500m")]}, "1.5"),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=4)]}, "4"),
        (
            {
                "containers": [container(cpu=1)],
                "initContainers": [{**container(cpu=2), "restartPolicy": "Always"}],
            },
            "3",
        ),
        (
            {
                "containers": [container(cpu=1)],
                "initContainers": [
                    {**container(cpu=2), "restartPolicy": "Always"},
                    container(cpu=5),
                ],
            },
            "7",
        ),
        ({"containers": [container(cpu=1)], "overhead": {"cpu": "250m"}}, "1.25"),
        ({"containers": [container(cpu=1)], "resources": {"requests": {"cpu": "8"}}}, "8"),
        ({"containers": [{"name": "one", "resources": {"limits": {"cpu": "3"}}}]}, "3"),
    ],
    ids=["sum", "init", "sidecar", "init after sidecar", "overhead", "pod", "only a limit"],
)
def test_pod_requests_what_its_containers_need_at_once(content: dict[str, Any], cpu: str) -> None:
    amounts = requested(spec(content))

    assert amounts["cpu"] == Decimal(cpu)
    assert amounts[PODS] == 1


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}, 4),
        ({"requests": {"cpu": "1"}}, 1),
        ({"limits": {"cpu": "4"}}, 4),
    ],
    ids=["both", "only a request", "only a limit"],
)
def test_pod_may_use_its_limits(resources: dict[str, Any], cpu: int) -> None:
    content = {"containers": [{"name": "one", "resources": resources}, container(cpu=1)]}
    assert allowed(spec(content))["cpu"] == cpu + 1
