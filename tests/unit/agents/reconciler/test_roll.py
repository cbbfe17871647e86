"""Rolling updates: which outdated pods the reconciler replaces, and when.

A node is drained for its update. It returns when its new pod is ready. The share limits how many
nodes of a nodeset may be out of service at once.
"""

from dataclasses import replace
from typing import Any

import pytest

from agents.reconciler import report
from agents.reconciler.actions import Action, Drain, Lift, Renew
from agents.reconciler.memory import Climb, Memory
from agents.reconciler.observed import Condition, Machine, Observed, Pod
from agents.reconciler.plan import Plan, plan
from agents.reconciler.roll import REASON, may_renew
from agents.slurm import Node
from tests.support.slurmnodes import NOW, drained, moment, node
from tests.unit.agents.reconciler.things import READY, machine, observed, pod, update, wanted

LIMIT = 900
"""Seconds within which a node must return after its update."""


def seen(
    *changed: Node | Pod | Machine,
    replicas: int = 4,
    outdated: int = 4,
    share: float = 0.5,
    in_maintenance: bool = False,
    without: str = "",
) -> Observed:
    """Return `replicas` nodes. The first `outdated` of them have an old pod. Each object in
    `changed` takes the place of the object with its name."""
    old = [pod(f"cpu-{ordinal}", revision="old") for ordinal in range(outdated)]
    found = observed(*old, *changed, replicas=replicas, without=without)
    return replace(found, updates={"cpu": update(share, in_maintenance=in_maintenance)})


def made(state: Observed, memory: Memory | None = None) -> Plan:
    nodes = len(state.records.keys() | state.pods.keys())
    return plan(state, wanted(nodes, rollout=LIMIT), memory or {}, NOW)


def rolled(state: Observed, memory: Memory | None = None) -> list[str]:
    """Return each action of the update as text, such as `Drain cpu-0`."""
    return [
        f"{type(action).__name__} {action.node}"
        for action in made(state, memory).actions
        if isinstance(action, Drain | Lift | Renew)
    ]


def busy(name: str, *state: str, **fields: Any) -> Node:
    return node(name, *state, alloc_cpus=1, **fields)


def rolling(name: str, **fields: Any) -> Node:
    return drained(name, REASON, **fields)


def started(name: str, seconds: int, **fields: Any) -> Pod:
    """Return a new pod that was created `seconds` ago and is not ready."""
    return pod(name, created=NOW - seconds, is_ready=False, **fields)


def test_nodes_with_current_pods_need_no_action() -> None:
    assert made(seen(outdated=0)).actions == ()


def test_idle_nodes_are_replaced_at_once_within_the_share() -> None:
    assert rolled(seen()) == ["Drain cpu-0", "Renew cpu-0", "Drain cpu-1", "Renew cpu-1"]
    assert made(seen()).outdated == {"cpu": 4}


def test_share_of_a_small_nodeset_is_one_node() -> None:
    assert rolled(seen(share=0.01)) == ["Drain cpu-0", "Renew cpu-0"]


def test_node_with_jobs_is_drained_and_replaced_when_they_have_ended() -> None:
    assert rolled(seen(busy("cpu-0"), outdated=1)) == ["Drain cpu-0"]
    draining = rolling("cpu-0", alloc_cpus=1)
    assert rolled(seen(draining, outdated=1)) == []
    assert rolled(seen(rolling("cpu-0"), outdated=1)) == ["Renew cpu-0"]


def test_completing_job_delays_the_replacement() -> None:
    completing = node("cpu-0", "IDLE", "DRAIN", "COMPLETING", reason=REASON)
    assert rolled(seen(completing, outdated=1)) == []


def test_nodes_without_jobs_are_updated_first() -> None:
    state = seen(busy("cpu-0"), busy("cpu-1"), busy("cpu-2"))
    assert rolled(state) == ["Drain cpu-3", "Renew cpu-3", "Drain cpu-0"]


@pytest.mark.parametrize(
    "away",
    [
        rolling("cpu-3", alloc_cpus=1),
        started("cpu-3", 10),
        pod("cpu-3", leaves=NOW + 60),
    ],
)
def test_nodes_out_of_service_use_up_the_share(away: Node | Pod) -> None:
    assert rolled(seen(away)) == ["Drain cpu-0", "Renew cpu-0"]


def test_missing_pod_uses_up_the_share() -> None:
    assert rolled(seen(without="pod cpu-3")) == ["Drain cpu-0", "Renew cpu-0"]


def went_down(name: str, seconds: int) -> Node:
    """Return a node that stopped responding `seconds` ago."""
    since = moment(NOW - seconds)
    return node(name, "DOWN", "NOT_RESPONDING", reason="Not responding", reason_time=since)


@pytest.mark.parametrize(
    ("late", "record", "memory"),
    [
        (started("cpu-3", LIMIT + 1), rolling("cpu-3"), {}),
        (started("cpu-3", LIMIT + 1), None, {}),
        (started("cpu-3", LIMIT + 1, machine=""), None, {}),
        (started("cpu-3", LIMIT + 60), went_down("cpu-3", 10 + LIMIT), {}),
        (started("cpu-3", 5), rolling("cpu-3"), {("cpu-3", "pod"): Climb(1, NOW, done=True)}),
    ],
    ids=["drained", "without record", "without machine", "down at once", "repaired in vain"],
)
def test_node_that_does_not_return_stops_further_updates(
    late: Pod, record: Node | None, memory: Memory
) -> None:
    state = seen(
        late,
        rolling("cpu-0", alloc_cpus=1),
        *([record] if record else []),
        outdated=3,
        share=1.0,
        without="" if record else "record cpu-3",
    )

    assert rolled(state, memory) == ["Lift cpu-0"]
    stopped = made(state, memory)
    (out,) = (one for one in stopped.out if one.cause == "roll" and one.needs_person)
    assert out.node == "cpu-3"
    assert "nodes of this nodeset with old settings: 3" in out.text
    assert report.code(stopped) == report.PERSON


@pytest.mark.parametrize(
    "record",
    [node("cpu-3"), went_down("cpu-3", 20), node("cpu-3", "DOWN", reason="new disk")],
    ids=["pod not ready", "down", "down by an operator"],
)
def test_node_that_fails_after_its_update_delays_no_others(record: Node) -> None:
    state = seen(started("cpu-3", LIMIT + 5000), record, outdated=1, share=0.01)
    assert rolled(state) == ["Drain cpu-0", "Renew cpu-0"]


def test_node_without_machine_does_not_delay_the_update() -> None:
    def lacking(**fields: Any) -> Pod:
        return started("cpu-3", LIMIT + 5000, machine="", **fields)

    before = seen(lacking(revision="old"), outdated=4, share=0.01, without="record cpu-3")
    assert rolled(before) == ["Drain cpu-0", "Renew cpu-0"]
    halfway = seen(lacking(revision="old"), outdated=2, share=0.01, without="record cpu-3")
    assert rolled(halfway) == ["Renew cpu-3", "Drain cpu-0", "Renew cpu-0"]
    after = seen(lacking(), outdated=2, share=0.01, without="record cpu-3")
    assert rolled(after) == ["Drain cpu-0", "Renew cpu-0"]


def test_draining_nodes_do_not_stop_the_update_of_idle_nodes() -> None:
    waiting = rolling("cpu-0", alloc_cpus=1)

    assert rolled(seen(waiting, share=0.01)) == ["Drain cpu-1", "Renew cpu-1"]
    # A node that waits for jobs uses up the share. Nevertheless, one idle node may be updated. Here
    # this node is cpu-3, so no other node may be updated.
    starting = started("cpu-3", 10)
    assert rolled(seen(waiting, starting, share=0.01)) == []


def test_starting_node_is_not_late_with_rollout_limit_0() -> None:
    state = seen(started("cpu-3", 60), outdated=3)
    assert plan(state, wanted(4, rollout=0), {}, NOW).outdated == {"cpu": 3}
    assert not any(out.needs_person for out in plan(state, wanted(4, rollout=0), {}, NOW).out)


def test_lost_machine_does_not_stop_the_update() -> None:
    lost = machine("machine-3", conditions={})
    state = seen(lost, started("cpu-3", LIMIT + 1), outdated=1, share=1.0)
    assert "Renew cpu-0" in rolled(state)


def test_pod_of_a_broken_node_is_updated_first() -> None:
    broken = pod("cpu-3", revision="old", is_ready=False)
    state = seen(broken, node("cpu-3", "DOWN", "NOT_RESPONDING"), outdated=3, share=0.01)
    assert rolled(state)[0] == "Renew cpu-3"


def test_pod_of_a_node_without_record_is_replaced() -> None:
    state = seen(pod("cpu-0", revision="old", is_ready=False), outdated=0, without="record cpu-0")
    (renew,) = (one for one in made(state).actions if isinstance(one, Renew))
    assert not renew.has_record


@pytest.mark.parametrize(
    "holder",
    [
        drained("cpu-0", "broken-fan"),
        machine("machine-0", is_cordoned=True),
        machine("machine-0", conditions={}),
    ],
)
def test_pod_stays_while_a_person_or_kubernetes_drains_the_node(
    holder: Node | Machine,
) -> None:
    reason = drained("cpu-0", "slurmstack:kubernetes:cordoned: machine-0")
    state = seen(*([] if isinstance(holder, Node) else [reason]), holder, outdated=1)
    assert "Renew cpu-0" not in rolled(state)


def test_node_that_slurm_refuses_because_of_its_old_size_is_replaced() -> None:
    refused = node("cpu-0", "DOWN", "INVALID_REG", "DRAIN", reason="Low RealMemory")
    assert "Renew cpu-0" in rolled(seen(refused, outdated=1))


def test_drain_is_lifted_if_the_edit_is_reverted() -> None:
    assert rolled(seen(rolling("cpu-0", alloc_cpus=1), outdated=0)) == ["Lift cpu-0"]


def test_update_may_be_limited_to_nodes_in_maintenance_reservations() -> None:
    state = seen(node("cpu-1", "IDLE", "MAINTENANCE"), share=0.01, in_maintenance=True)
    assert rolled(state) == ["Drain cpu-1", "Renew cpu-1"]


def test_all_nodes_of_a_maintenance_reservation_are_updated_at_once() -> None:
    nodes = [node(f"cpu-{ordinal}", "IDLE", "MAINTENANCE") for ordinal in range(4)]
    assert len(rolled(seen(*nodes, share=0.01, in_maintenance=True))) == 8


def test_node_returns_to_service_when_its_reservation_ends() -> None:
    draining = rolling("cpu-0", alloc_cpus=1)
    assert rolled(seen(draining, in_maintenance=True)) == ["Lift cpu-0"]


@pytest.mark.parametrize(
    "found",
    [
        machine("machine-0", is_cordoned=True),
        machine("machine-0", conditions={**READY, "DiskPressure": Condition("True")}),
    ],
)
def test_update_does_not_begin_on_a_node_that_kubernetes_wants_drained(found: Machine) -> None:
    state = seen(found, outdated=1)

    (drain,) = (one for one in made(state).actions if isinstance(one, Drain))
    assert drain.reason != REASON

    # The limit on drains (`share`) can keep this node in service. Even then, no update begins.
    limited = plan(state, wanted(4, rollout=LIMIT, share=0.0), {}, NOW)
    assert all(one.reason != REASON for one in limited.actions if isinstance(one, Drain))


def test_nodeset_without_a_known_template_gets_no_updates() -> None:
    state = replace(seen(rolling("cpu-1")), updates={})
    assert made(state).actions == ()


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (rolling("cpu-0"), True),
        (node("cpu-0", "DOWN", "NOT_RESPONDING"), True),
        (rolling("cpu-0", alloc_cpus=1), False),
        (rolling("cpu-0", alloc_memory=224), False),
        (node("cpu-0"), False),
    ],
)
def test_pod_is_deleted_only_while_no_job_can_start(record: Node, may: bool) -> None:
    assert may_renew(record) is may


@pytest.mark.parametrize(
    ("state", "goes_on"),
    [
        (seen(), True),
        (seen(rolling("cpu-0"), outdated=1), True),
        (seen(busy("cpu-0"), outdated=1), False),
        (seen(rolling("cpu-0", alloc_cpus=1), outdated=1), False),
        (seen(in_maintenance=True), False),
        (seen(outdated=0), False),
    ],
)
def test_early_pass_follows_only_if_idle_nodes_are_updated(state: Observed, goes_on: bool) -> None:
    assert made(state).goes_on is goes_on


def test_actions_are_one_line_each() -> None:
    actions: tuple[Action, ...] = made(seen()).actions
    assert str(actions[1]) == (
        "replace the pod of node cpu-0, because the node's settings have changed"
    )
