from decimal import Decimal
from typing import Any

import pytest

from agents.bridge.identity import Identity
from agents.bridge.jobs import comment, job_request, read_comment
from agents.bridge.observed import Request
from agents.bridge.wishes import Wishes
from tests.unit.agents.bridge.things import spec, wanted

GIB = Decimal(2**30)


def body(
    pods: int = 1,
    size: dict[str, Decimal] | None = None,
    limits: dict[str, Decimal] | None = None,
    **wishes: Any,
) -> dict[str, Any]:
    identity = Identity("alice", 1001, 1002, "vision")
    amounts = {"cpu": Decimal(2), "memory": GIB} if size is None else size
    request = Request("lab/train", identity, Wishes(**wishes), spec(), amounts, limits or {})
    made = job_request("g", request, pods, frozenset({"n-1", "n-0"}), wanted()).body()
    content: dict[str, Any] = made["job"]
    return content


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def test_job_belongs_to_the_user_and_holds_what_the_pod_requests() -> None:
    made = body()

    assert (made["name"], made["user_id"], made["group_id"]) == ("lab/train", "1001", "1002")
    assert (made["account"], made["partition"]) == ("vision", "pods")
    assert (made["tasks"], made["cpus_per_task"], made["nodes"]) == (1, 2, "1")
    assert made["memory_per_node"] == number(1024)
    assert made["excluded_nodes"] == ["n-0", "n-1"]
    assert made["requeue"] is False


def test_job_holds_what_the_pod_may_use() -> None:
    """Slurm would otherwise give the CPUs and memory between request and limit to jobs."""
    made = body(limits={"cpu": Decimal(4), "memory": 3 * GIB})
    assert (made["cpus_per_task"], made["memory_per_node"]) == (4, number(3072))


def test_annotations_make_no_job_smaller_than_its_pod() -> None:
    made = body(cpus_per_task=1, memory_per_node=1)
    assert (made["cpus_per_task"], made["memory_per_node"]) == (2, number(1024))


def test_job_has_memory_for_its_own_processes() -> None:
    assert body(size={"memory": Decimal(1)})["memory_per_node"] == number(16)


def test_memory_of_a_gang_is_a_part_of_each_cpu() -> None:
    made = body(pods=3)

    assert made["tasks"] == 3
    assert made["memory_per_cpu"] == number(512)
    assert "memory_per_node" not in made
    assert "nodes" not in made


def test_pod_without_requests_gets_a_cpu_and_the_default_memory() -> None:
    made = body(size={})

    assert made["cpus_per_task"] == 1
    assert "memory_per_node" not in made


def test_gpus_are_counted_for_each_pod() -> None:
    made = body(pods=2, size={"nvidia.com/gpu": Decimal(4)})

    assert made["tres_per_task"] == "gres/gpu:4"


def test_wishes_reach_the_job() -> None:
    made = body(
        name="night",
        partition="long",
        qos="high",
        time_limit=5,
        constraints="h100|a100",
        gres="gpu:2",
        exclusive=True,
        memory_per_node=2048,
        licenses="matlab:1",
        reservation="maintenance",
        wckey="thesis",
    )

    assert (made["name"], made["partition"], made["qos"]) == ("night", "long", "high")
    assert made["time_limit"] == number(5)
    assert made["constraints"] == "(h100|a100)&pods"
    assert made["tres_per_node"] == "gres/gpu:2"
    assert made["shared"] == ["none"]
    assert made["memory_per_node"] == number(2048)
    assert (made["licenses"], made["reservation"]) == ("matlab:1", "maintenance")
    assert made["wckey"] == "thesis"


def test_users_cannot_choose_a_priority() -> None:
    """Slurm would accept each priority, because the bridge submits as SlurmUser."""
    assert "priority" not in body(priority=1_000_000)


def test_rule_of_the_settings_lets_pods_choose_a_priority() -> None:
    operator = Identity("alice", 1001, 1002, None, may_set_priority=True)
    request = Request("lab/train", operator, Wishes(priority=7), spec(), {})
    made = job_request("g", request, 1, frozenset(), wanted()).body()["job"]
    assert made["priority"] == number(7)


def test_gang_is_found_again_in_the_comment_of_its_job() -> None:
    text = comment("PodGroup/lab/mpi/1", 2)

    assert read_comment(text) == {"gang": "PodGroup/lab/mpi/1", "pods": 2}


@pytest.mark.parametrize("text", ["", "my comment", "slurmstack:bridge:", "slurmstack:bridge:{}"])
def test_job_with_another_comment_is_not_the_bridges(text: str) -> None:
    assert read_comment(text) is None
