"""With `keep_machine`, a node's new pod starts on the same machine as its last pod.

Kubernetes creates the pod with a scheduling gate. The reconciler removes the gate when it has
chosen the machine.
"""

import pytest

from agents import labels, objects
from agents.reconciler.actions import Free, Schedule
from agents.reconciler.machines import places
from agents.reconciler.observed import Machine, Observed, Pod
from agents.reconciler.plan import plan
from agents.reconciler.wanted import Wanted
from agents.slurm import Node
from tests.support.slurmnodes import NOW, node
from tests.unit.agents.reconciler.things import machine, observed, pod, wanted

KEPT = wanted().model_copy(
    update={
        "nodesets": {
            name: nodeset.model_copy(update={"keep_machine": True})
            for name, nodeset in wanted().nodesets.items()
        }
    }
)
FREE_AGAIN = Free("cpu-1", "cpu-1-uid", "machine-9")


def gated(name: str) -> Pod:
    return pod(name, machine="", is_ready=False, is_gated=True)


def kept(name: str, on: str = "") -> Node:
    return node(name, machine=on or name.replace("cpu", "machine"))


def state(*changed: Node | Pod | Machine, without: str = "") -> Observed:
    """Return three healthy nodes on their machines. Each object in `changed` takes the place of the
    healthy object with its name."""
    return observed(kept("cpu-0"), kept("cpu-1"), kept("cpu-2"), *changed, without=without)


def planned(seen: Observed, asked: Wanted = KEPT) -> list[Schedule | Free]:
    return list(places(seen, asked, NOW))


def test_nodes_on_their_machines_need_no_action() -> None:
    assert planned(state()) == []
    assert not plan(state(), KEPT, {}, NOW).goes_on


def test_node_returns_to_its_machine() -> None:
    found = state(gated("cpu-1"), machine("machine-1", labels={labels.HOSTNAME: "host-1"}))

    assert planned(found) == [Schedule("cpu-1", "cpu-1-uid", "machine-1", "host-1")]
    assert plan(found, KEPT, {}, NOW).goes_on


def test_machine_without_the_hostname_label_is_chosen_by_its_name() -> None:
    assert planned(state(gated("cpu-1"))) == [
        Schedule("cpu-1", "cpu-1-uid", "machine-1", "machine-1")
    ]


@pytest.mark.parametrize(
    ("changed", "without"),
    [
        ([node("cpu-1")], ""),
        ([kept("cpu-1", on="machine-9")], ""),
        ([], "record cpu-1"),
    ],
    ids=["never started", "its machine is gone", "no record"],
)
def test_node_without_a_machine_starts_anywhere(changed: list[Node], without: str) -> None:
    assert planned(state(gated("cpu-1"), *changed, without=without)) == [
        Schedule("cpu-1", "cpu-1-uid")
    ]


@pytest.mark.parametrize(
    ("other", "without"),
    [
        ([pod("cpu-2", leaves=NOW + 60.0)], ""),
        ([gated("cpu-2")], ""),
        ([], "pod cpu-2"),
    ],
    ids=["leaves", "gated", "missing"],
)
def test_node_without_machine_waits_while_others_return_to_their_machines(
    other: list[Pod], without: str
) -> None:
    found = state(gated("cpu-1"), node("cpu-1"), *other, without=without)

    assert Schedule("cpu-1", "cpu-1-uid") not in planned(found)


def test_pod_stuck_terminating_does_not_delay_nodes_without_a_machine() -> None:
    stuck = pod("cpu-2", leaves=NOW - objects.STUCK)

    assert planned(state(gated("cpu-1"), node("cpu-1"), stuck)) == [Schedule("cpu-1", "cpu-1-uid")]


def test_node_that_waits_for_another_node_causes_no_early_pass() -> None:
    waits = state(gated("cpu-1"), node("cpu-1"), pod("cpu-2", leaves=NOW + 60.0))

    assert planned(waits) == []
    assert not plan(waits, KEPT, {}, NOW).goes_on


def test_node_whose_machine_is_full_does_not_delay_other_nodes() -> None:
    waits = pod("cpu-2", machine="", is_ready=False, hostname="machine-2")

    assert planned(state(gated("cpu-1"), node("cpu-1"), waits)) == [Schedule("cpu-1", "cpu-1-uid")]


def test_pod_that_waits_for_a_lost_machine_is_replaced() -> None:
    waits = pod("cpu-1", machine="", is_ready=False, hostname="machine-9")

    assert planned(state(waits)) == [FREE_AGAIN]


def test_terminating_pod_gets_no_action() -> None:
    leaves = pod("cpu-1", machine="", is_gated=True, leaves=NOW + 60.0)

    assert planned(state(leaves)) == []


def test_pods_of_nodesets_without_keep_machine_get_no_action() -> None:
    assert planned(state(gated("cpu-1")), wanted()) == []
    assert not plan(state(gated("cpu-1")), wanted(), {}, NOW).goes_on


def test_node_that_waits_for_its_machine_is_reported_and_scheduled() -> None:
    made = plan(state(gated("cpu-1")), KEPT, {}, NOW)

    assert [str(one) for one in made.out] == [
        (
            "cpu-1: gated: the pod waits until the reconciler has chosen its machine "
            "('keep_machine'), usually for some seconds; no action needed (waiting)"
        )
    ]
    assert Schedule("cpu-1", "cpu-1-uid", "machine-1", "machine-1") in made.actions
    assert made.in_service == 2
    assert made.goes_on
