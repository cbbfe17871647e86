"""The plan for a node on demand contains the right actions for each state of the node."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agents.ondemand.actions import (
    Action,
    Asleep,
    Create,
    Delete,
    GiveUp,
    Hold,
    Lose,
    Release,
    Retry,
    Sleep,
    Started,
    Wake,
)
from agents.ondemand.memory import Memory
from agents.ondemand.observed import BROKEN, CAPACITY, IMAGE, Observed, Pod, Template, Trouble
from agents.ondemand.plan import Plan, back_off, plan
from agents.ondemand.wanted import Hours, Nodeset, Wanted
from tests.support.slurmnodes import NOW, moment, node

TEMPLATE = Template("gpu", "template", {"spec": {}}, "new")
NO_ROOM = Trouble(CAPACITY, "0/3 nodes are available")
BAD_IMAGE = Trouble(IMAGE, "slurmd: ImagePullBackOff")
BROKEN_POD = Trouble(BROKEN, "slurmd: CrashLoopBackOff")
REJECTED = Trouble(BROKEN, "UnexpectedAdmissionError: no healthy devices")
DELETE_REJECTED = Delete("gpu-0", "gpu-0-uid", f"the pod has ended: {REJECTED.text}")
LATE = GiveUp(
    "gpu-0",
    (
        "slurmstack:start:timeout: the node did not start within 900 s; see the events and the "
        "slurmd log of pod gpu-0, and the log of the Deployment 'ondemand'"
    ),
    1,
)
GONE = GiveUp(
    "gpu-0",
    (
        "slurmstack:start:timeout: the node did not start within 900 s, and has no pod; see the "
        "events of pod gpu-0, and the log of the Deployment 'ondemand'"
    ),
    1,
)


def nodeset(**fields: Any) -> Nodeset:
    return Nodeset(
        **{
            "max": 1,
            "min": 0,
            "idle": 600,
            "start": 900,
            "price": 1.0,
            "keep": frozenset(),
            "schedule": (),
            **fields,
        }
    )


def pod(name: str = "gpu-0", age: float = 10, **fields: Any) -> Pod:
    return Pod(
        **{
            "name": name,
            "uid": f"{name}-uid",
            "created": NOW - age,
            "template": "new",
            "is_ready": True,
            **fields,
        }
    )


def ended(**fields: Any) -> Pod:
    """Return a pod that the kubelet has rejected or evicted."""
    return pod(**{"is_ready": False, "has_ended": True, "trouble": REJECTED, **fields})


def planned(
    records: Mapping[str, Any],
    pods: list[Pod] | None = None,
    ceiling: float | None = None,
    memory: Memory | None = None,
    **fields: Any,
) -> Plan:
    nodes = {name: node(name, *state, **more) for name, (state, more) in records.items()}
    observed = Observed(nodes, {one.name: one for one in pods or []}, {"gpu": TEMPLATE})
    chosen = nodeset(**{"max": len(records), **fields})
    return plan(observed, Wanted(nodesets={"gpu": chosen}, ceiling=ceiling), NOW, memory)


def actions(
    records: Mapping[str, Any],
    pods: list[Pod] | None = None,
    ceiling: float | None = None,
    memory: Memory | None = None,
    **fields: Any,
) -> list[Action]:
    return list(planned(records, pods, ceiling, memory, **fields).actions)


def remembered(records: Mapping[str, Any], before: Memory, *pods: Pod) -> Memory:
    return planned(records, list(pods), memory=before).memory


def record(*state: str, **fields: Any) -> dict[str, Any]:
    return {"gpu-0": (("CLOUD", *state), fields)}


def failed(kind: str, age: int = 0, tries: int = 1, *state: str) -> dict[str, Any]:
    return record(
        *("DOWN", *state),
        reason=f"slurmstack:start:{kind}: text",
        reason_time=moment(NOW - age),
        comment=f"slurmstack:failed starts: {tries}",
    )


ASLEEP = record("IDLE", "POWERED_DOWN")
WAKING = record("ALLOCATED", "POWERING_UP", "NOT_RESPONDING")
LEAVING = record("IDLE", "POWERING_DOWN")
IDLE = record("IDLE", last_busy=moment(NOW - 700))
RECENT = record("IDLE", last_busy=moment(NOW - 500))
BUSY = record("ALLOCATED", alloc_cpus=2, last_busy=moment(NOW))


@pytest.mark.parametrize(
    ("records", "pods", "expected"),
    [
        # Nodes that sleep.
        (ASLEEP, [], []),
        (ASLEEP, [pod(is_ready=False)], [Delete("gpu-0", "gpu-0-uid", "the node sleeps in Slurm")]),
        (ASLEEP, [pod(leaves=True)], []),
        (LEAVING, [pod()], [Delete("gpu-0", "gpu-0-uid", "the node sleeps in Slurm")]),
        (LEAVING, [pod(leaves=True)], []),
        # slurmctld has lost the node's start, and a job runs.
        (record("ALLOCATED", "POWERED_DOWN"), [pod()], []),
        (record("ALLOCATED", "POWERING_DOWN"), [pod()], []),
        # RESUME has set NOT_RESPONDING.
        (
            record("IDLE", "POWERED_DOWN", "NOT_RESPONDING"),
            [],
            [
                Sleep(
                    "gpu-0",
                    "the node sleeps already, but Slurm marks it NOT_RESPONDING; this "
                    "request clears the mark; no action needed",
                )
            ],
        ),
        (LEAVING, [], [Asleep("gpu-0")]),
        (
            record("IDLE", "DRAIN", "POWERING_DOWN", reason="slurmstack:leave"),
            [],
            [Asleep("gpu-0")],
        ),
        # The agent must not end a person's drain. So the agent waits until Slurm itself ends
        # POWERING_DOWN.
        (record("IDLE", "DRAIN", "POWERING_DOWN", reason="broken-fan"), [], []),
        (record("IDLE", "DRAIN", "POWERED_DOWN", reason="broken-fan"), [], []),
        # Nodes that wake.
        (WAKING, [], [Create("gpu-0", "gpu")]),
        (WAKING, [pod(is_ready=False)], []),
        (WAKING, [pod(leaves=True)], []),
        (WAKING, [pod(age=899, is_ready=False, trouble=NO_ROOM)], []),
        (
            WAKING,
            [pod(age=901, is_ready=False, trouble=NO_ROOM)],
            [GiveUp("gpu-0", "slurmstack:start:capacity: 0/3 nodes are available", 1)],
        ),
        # A slow pull of an image may fail once, and succeed later.
        (WAKING, [pod(age=850, is_ready=False, trouble=BAD_IMAGE)], []),
        (
            WAKING,
            [pod(age=901, is_ready=False, trouble=BAD_IMAGE)],
            [GiveUp("gpu-0", "slurmstack:start:image: slurmd: ImagePullBackOff", 1)],
        ),
        (
            WAKING,
            [pod(age=901)],
            [LATE],
        ),
        (
            WAKING,
            [pod(template="old", is_ready=False, trouble=BAD_IMAGE)],
            [Delete("gpu-0", "gpu-0-uid", "the settings of its nodeset have changed")],
        ),
        # The kubelet may have rejected the pod because the machine is new.
        (WAKING, [ended()], [DELETE_REJECTED]),
        # Failed starts.
        (
            failed("image", 0, 1, "POWERING_UP"),
            [pod()],
            [Sleep("gpu-0", "slurmstack:start:image: text")],
        ),
        (failed("image", 0, 1, "POWER_DOWN"), [pod()], []),
        (failed("image", 179, 1, "POWERED_DOWN"), [], []),
        (
            failed("image", 180, 1, "POWERED_DOWN"),
            [],
            [Retry("gpu-0", "slurmstack:start:image: text")],
        ),
        (failed("image", 359, 2, "POWERED_DOWN"), [], []),
        (
            record("DOWN", "POWERED_DOWN", reason="ResumeTimeout reached"),
            [],
            [GONE],
        ),
        (
            record("DOWN", "POWERED_DOWN", reason="slurmstack:leave : ResumeTimeout reached"),
            [],
            [GONE],
        ),
        (record("DOWN", "POWERED_DOWN", reason="broken-fan : ResumeTimeout reached"), [], []),
        (
            record(
                "DOWN", "POWERED_DOWN", reason="slurmstack:cost: too dear : ResumeTimeout reached"
            ),
            [],
            [GONE],
        ),
        (
            record("DOWN", "POWERED_DOWN", reason="Not responding : ResumeTimeout reached"),
            [],
            [GONE],
        ),
        (
            record("DOWN", "POWERED_DOWN", reason="Not responding"),
            [],
            [Retry("gpu-0", "Not responding")],
        ),
        (
            record("IDLE", comment="slurmstack:failed starts: 3", last_busy=moment(NOW)),
            [pod()],
            [Started("gpu-0")],
        ),
        # The kubelet has evicted the pod.
        (BUSY, [ended()], [DELETE_REJECTED]),
        (IDLE, [ended()], [DELETE_REJECTED]),
        (record("DOWN", reason="Not responding"), [ended()], [DELETE_REJECTED]),
        (record("IDLE", "DRAIN", reason="broken-fan"), [ended()], [DELETE_REJECTED]),
        (ASLEEP, [ended()], [Delete("gpu-0", "gpu-0-uid", "the node sleeps in Slurm")]),
        # Nodes that are awake.
        (BUSY, [pod()], []),
        (BUSY, [pod(template="old")], []),
        (RECENT, [pod()], []),
        (IDLE, [pod()], [Sleep("gpu-0", "the node has had no job for 700 s")]),
        (
            RECENT,
            [pod(template="old")],
            [Sleep("gpu-0", "the settings of its nodeset have changed")],
        ),
        (BUSY, [], [Lose("gpu-0")]),
        (record("IDLE", "DRAIN", reason="slurmstack:leave"), [], [Lose("gpu-0")]),
        # Only a pod can show whether the node is healthy again.
        (
            record("IDLE", "DRAIN", reason="slurmstack:check:disk: full"),
            [],
            [Create("gpu-0", "gpu")],
        ),
        (record("IDLE", "DRAIN", reason="broken-fan"), [], [Create("gpu-0", "gpu")]),
        # A person set the node to DOWN. A new pod would return it to service (ReturnToService=2).
        (record("DOWN", reason="broken-fan"), [], []),
        # The node did not respond when it was drained.
        (record("DOWN", "DRAIN", reason="broken-fan"), [], [Create("gpu-0", "gpu")]),
        # A pod that cannot start is replaced if its template has been corrected.
        (
            record("DOWN", reason="Not responding"),
            [pod(template="old", is_ready=False)],
            [Delete("gpu-0", "gpu-0-uid", "the settings of its nodeset have changed")],
        ),
        (record("DOWN", reason="Not responding"), [pod(is_ready=False)], []),
        (
            record("ALLOCATED", "DRAIN", reason="broken-fan", alloc_cpus=2),
            [pod(template="old", is_ready=False)],
            [],
        ),
        # A person woke the node. If it is idle, it goes to sleep like any other node.
        (
            record("IDLE", "POWER_UP", last_busy=moment(NOW - 700)),
            [pod()],
            [Sleep("gpu-0", "the node has had no job for 700 s")],
        ),
    ],
)
def test_actions_of_a_node(records: Any, pods: list[Pod], expected: list[Action]) -> None:
    assert actions(records, pods) == expected


@pytest.mark.parametrize(
    "flag", ["COMPLETING", "DRAIN", "MAINTENANCE", "PLANNED", "RESERVED", "REBOOT_REQUESTED"]
)
def test_idle_node_that_is_reserved_or_drained_stays_awake(flag: str) -> None:
    assert actions(record("IDLE", flag, last_busy=moment(0)), [pod()]) == []


def test_node_keeps_its_pod_for_a_minute_if_slurmctld_lost_its_state() -> None:
    seen = Memory(recovering={"gpu-0": NOW - 59})
    assert actions(ASLEEP, [pod()], memory=seen) == []
    seen = Memory(recovering={"gpu-0": NOW - 60})
    assert actions(ASLEEP, [pod()], memory=seen) == [
        Delete("gpu-0", "gpu-0-uid", "the node sleeps in Slurm")
    ]


def test_pod_whose_start_slurmctld_missed_is_replaced_after_a_minute() -> None:
    seen = Memory(recovering={"gpu-0": NOW - 59})
    assert actions(WAKING, [pod(age=90)], memory=seen) == []
    seen = Memory(recovering={"gpu-0": NOW - 60})
    assert actions(WAKING, [pod(age=90)], memory=seen) == [
        Delete(
            "gpu-0",
            "gpu-0-uid",
            "slurmctld has lost the registration of the pod's slurmd; a new pod registers again",
        )
    ]


def test_second_pod_that_the_kubelet_rejects_ends_the_start() -> None:
    memory = Memory(ended={"gpu-0": "first"})
    reason = "slurmstack:start:broken: UnexpectedAdmissionError: no healthy devices"
    assert actions(WAKING, [ended()], memory=memory) == [GiveUp("gpu-0", reason, 1)]
    again = Memory(ended={"gpu-0": "gpu-0-uid"})
    assert actions(WAKING, [ended()], memory=again) == [DELETE_REJECTED]


def test_rejected_pod_of_an_earlier_start_does_not_end_the_start() -> None:
    assert remembered(ASLEEP, Memory(ended={"gpu-0": "first"})).ended == {}


@pytest.mark.parametrize("number", ["9" * 5000, "", "x", "-1", "1.5", "²"])
def test_unusable_number_of_failed_starts_is_ignored(number: str) -> None:
    given = record("DOWN", "POWERED_DOWN", reason="ResumeTimeout reached")
    given["gpu-0"][1]["comment"] = f"slurmstack:failed starts: {number}"
    (action,) = actions(given)
    assert isinstance(action, GiveUp)
    assert action.tries == 1


@pytest.mark.parametrize(
    ("trouble", "patience"), [(BAD_IMAGE, 60), (BROKEN_POD, 120)], ids=["image", "broken"]
)
def test_start_fails_if_the_same_problem_lasts_too_long(trouble: Trouble, patience: int) -> None:
    troubled = pod(age=500, is_ready=False, trouble=trouble)
    seen = ("gpu-0-uid", trouble.kind, NOW - patience)
    assert actions(WAKING, [troubled], memory=Memory(troubles={"gpu-0": seen})) == []
    seen = ("gpu-0-uid", trouble.kind, NOW - patience - 1)
    assert actions(WAKING, [troubled], memory=Memory(troubles={"gpu-0": seen})) == [
        GiveUp("gpu-0", f"slurmstack:start:{trouble.kind}: {trouble.text}", 1)
    ]


def test_agent_remembers_since_when_a_pod_has_its_problem() -> None:
    image = pod(is_ready=False, trouble=BAD_IMAGE)
    seen = {"gpu-0": ("gpu-0-uid", IMAGE, NOW)}
    assert remembered(WAKING, Memory(), image).troubles == seen
    older = Memory(troubles={"gpu-0": ("gpu-0-uid", IMAGE, NOW - 30)})
    assert remembered(WAKING, older, image).troubles == older.troubles
    assert remembered(WAKING, older, replace(image, uid="new")).troubles != older.troubles
    assert remembered(WAKING, older, replace(image, trouble=None)).troubles == {}


def test_crashing_container_still_counts_as_broken_while_it_runs() -> None:
    older = Memory(troubles={"gpu-0": ("gpu-0-uid", BROKEN, NOW - 30)})
    runs = pod(is_ready=False)
    assert remembered(WAKING, older, runs).troubles == older.troubles


STUCK_POD = pod(is_ready=False, leaves=True, ends=NOW - 121.0, machine="metal-7")
STUCK_REASON = (
    "slurmstack:start:broken: pod gpu-0 is stuck terminating on machine metal-7; "
    "check the kubelet of this machine"
)


def test_start_fails_if_the_previous_pod_is_stuck_terminating() -> None:
    assert actions(WAKING, [STUCK_POD]) == [GiveUp("gpu-0", STUCK_REASON, 1)]
    assert actions(WAKING, [replace(STUCK_POD, ends=NOW - 120.0)]) == []


def test_start_fails_if_the_previous_pod_terminates_for_too_long() -> None:
    slow = replace(STUCK_POD, ends=NOW + 3000.0)
    assert actions(WAKING, [slow], memory=Memory(blocked={"gpu-0": NOW - 900})) == []
    blocked = Memory(blocked={"gpu-0": NOW - 901})
    assert actions(WAKING, [slow], memory=blocked) == [GiveUp("gpu-0", STUCK_REASON, 1)]
    assert remembered(ASLEEP, blocked, slow).blocked == {}


def test_failed_start_is_not_repeated_while_its_pod_hangs() -> None:
    assert actions(failed("broken", 9999, 1, "POWERED_DOWN"), [STUCK_POD]) == []


def test_stuck_pod_does_not_change_a_reason_set_by_a_person() -> None:
    drained = record("DRAIN", "POWERING_UP", reason="broken-fan")
    assert actions(drained, [STUCK_POD]) == []


def test_back_off_doubles_up_to_an_hour() -> None:
    assert [back_off(tries) for tries in (1, 2, 3, 5, 6, 99)] == [180, 360, 720, 2880, 3600, 3600]


@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_node_taken_out_of_service_while_it_starts_gets_no_pod(state: str) -> None:
    taken_out = record(state, "POWERING_UP", reason="broken-fan")
    memory = Memory(starting=frozenset({"gpu-0"}))
    assert actions(taken_out, memory=memory) == []


def test_agent_remembers_nodes_that_began_to_start_in_service() -> None:
    assert remembered(WAKING, Memory()).starting == {"gpu-0"}
    drained = record("DRAIN", "POWERING_UP", reason="broken-fan")
    assert remembered(drained, Memory()).starting == frozenset()
    memory = Memory(starting=frozenset({"gpu-0"}))
    assert remembered(drained, memory).starting == {"gpu-0"}
    assert remembered(ASLEEP, memory).starting == frozenset()


def test_drained_node_that_a_person_wakes_gets_a_pod() -> None:
    drained = record("DRAIN", "POWERING_UP", reason="broken-fan")
    assert actions(drained) == [Create("gpu-0", "gpu")]


# --- Warm nodes ----------------------------------------------------------------------------------


def sleeping(nodes: int) -> dict[str, Any]:
    return {f"gpu-{n}": (("CLOUD", "IDLE", "POWERED_DOWN"), {}) for n in range(nodes)}


def idle(nodes: int) -> tuple[dict[str, Any], list[Pod]]:
    """Return idle nodes and their pods. A node with a higher number has been idle for longer."""
    records = {
        f"gpu-{n}": (("CLOUD", "IDLE"), {"last_busy": moment(NOW - 1000 - n)}) for n in range(nodes)
    }
    return records, [pod(name) for name in records]


def test_warm_nodes_wake_in_the_order_of_their_numbers() -> None:
    assert actions(sleeping(3), min=2) == [Wake("gpu-0"), Wake("gpu-1")]


def test_nodes_out_of_service_are_not_counted_as_warm() -> None:
    records = {
        **sleeping(3),
        "gpu-0": (("CLOUD", "IDLE", "DRAIN"), {"reason": "broken-fan"}),
    }
    assert actions(records, [pod()], min=1) == [Wake("gpu-1")]


def test_warm_nodes_stay_awake_and_longest_idle_nodes_sleep() -> None:
    records, pods = idle(3)
    asleep = [action.node for action in actions(records, pods, min=1) if isinstance(action, Sleep)]
    assert asleep == ["gpu-2", "gpu-1"]


def test_nodes_in_the_setting_keep_stay_awake_but_never_wake() -> None:
    records, pods = idle(1)
    assert actions(records, pods, keep=frozenset({"gpu-0"})) == []
    assert actions(sleeping(1), keep=frozenset({"gpu-0"})) == []


def test_more_nodes_stay_awake_in_the_configured_hours() -> None:
    # NOW is Friday, 2027-01-15, 08:00 UTC.
    day = Hours(days=frozenset({4}), begin=8 * 60, end=18 * 60, min=2)
    night = Hours(days=frozenset({3}), begin=20 * 60, end=8 * 60 + 1, min=3)
    assert actions(sleeping(3), schedule=(day,)) == [Wake("gpu-0"), Wake("gpu-1")]
    assert len(actions(sleeping(3), schedule=(day, night))) == 3
    over = Hours(days=frozenset({3}), begin=20 * 60, end=8 * 60, min=3)
    assert actions(sleeping(3), schedule=(over,)) == []


# --- Costs ---------------------------------------------------------------------------------------


def test_sleeping_nodes_over_the_cost_ceiling_are_drained() -> None:
    reason = (
        "slurmstack:cost: with this node, on-demand nodes would cost more than "
        "'on_demand.ceiling': 2 per hour; wait until other on-demand nodes stop, or "
        "raise this limit"
    )
    assert actions(sleeping(3), ceiling=2) == [Hold("gpu-2", reason)]


def test_nodes_held_for_their_cost_return_when_others_sleep() -> None:
    reason = (
        "slurmstack:cost: with this node, on-demand nodes would cost more than "
        "'on_demand.ceiling': 1 per hour; wait until other on-demand nodes stop, or "
        "raise this limit"
    )
    held = (("CLOUD", "IDLE", "DRAIN", "POWERED_DOWN"), {"reason": reason})
    awake = (("CLOUD", "ALLOCATED"), {"alloc_cpus": 2})
    assert actions({"gpu-0": awake, "gpu-1": held}, [pod()], ceiling=1) == []
    one = {"gpu-0": held, "gpu-1": held}
    assert actions(one, ceiling=1) == [Release("gpu-0", reason)]


def test_node_that_woke_before_it_was_held_is_released() -> None:
    """Slurm has no conditional update: a node may wake while the agent holds it."""
    held = record("IDLE", "DRAIN", reason="slurmstack:cost: too much")
    release = Release("gpu-0", "slurmstack:cost: too much")

    assert actions(held, [pod()], ceiling=1.0) == [release]


def test_start_of_a_node_over_the_cost_ceiling_is_cancelled() -> None:
    records = {
        "gpu-0": (("CLOUD", "ALLOCATED"), {"alloc_cpus": 2}),
        "gpu-1": (("CLOUD", "ALLOCATED", "POWERING_UP"), {}),
    }
    (action,) = actions(records, [pod()], ceiling=1)
    assert isinstance(action, GiveUp)
    assert action.reason.startswith("slurmstack:start:cost: ")


def test_start_over_the_cost_ceiling_is_not_a_failed_start() -> None:
    records = {
        "gpu-0": (("CLOUD", "ALLOCATED"), {"alloc_cpus": 2}),
        "gpu-1": (("CLOUD", "POWERING_UP"), {"comment": "slurmstack:failed starts: 2"}),
    }
    (action,) = actions(records, [pod()], ceiling=1)
    assert isinstance(action, GiveUp)
    assert action.tries == 2


def test_start_refused_for_its_cost_waits_until_the_ceiling_permits() -> None:
    records = {
        "gpu-0": (("CLOUD", "ALLOCATED"), {"alloc_cpus": 2}),
        "gpu-1": failed("cost", 9999, 1, "POWERED_DOWN")["gpu-0"],
    }
    retry = Retry("gpu-1", "slurmstack:start:cost: text")
    assert actions(records, [pod()], ceiling=1) == []
    assert actions(records, [pod()], ceiling=2) == [retry]
    # Slurm could also wake the other node of the nodeset.
    records["gpu-2"] = sleeping(1)["gpu-0"]
    assert actions(records, [pod()], ceiling=2) == []
    assert actions(records, [pod()], ceiling=3) == [retry]


# --- Deploys -------------------------------------------------------------------------------------


def test_node_that_slurmctld_does_not_know_yet_is_left_alone() -> None:
    observed = Observed({}, {"gpu-0": pod()}, {"gpu": TEMPLATE})
    wanted = Wanted(nodesets={"gpu": nodeset()}, ceiling=None)
    assert plan(observed, wanted, NOW).actions == ()


def test_pod_of_a_removed_node_is_deleted() -> None:
    observed = Observed({}, {"gpu-5": pod("gpu-5")}, {"gpu": TEMPLATE})
    wanted = Wanted(nodesets={"gpu": nodeset()}, ceiling=None)
    assert plan(observed, wanted, NOW).actions == (
        Delete("gpu-5", "gpu-5-uid", "the settings do not contain the node"),
    )
