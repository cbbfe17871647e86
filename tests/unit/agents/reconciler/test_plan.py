"""The plan contains the right actions for the findings, which are problems of nodes.

A mark is the condition and the taint that the reconciler adds to the Node object of an unhealthy
machine. A ladder is a list of repair steps against one cause of problems. The memory contains the
progress on these ladders.
"""

from dataclasses import replace

import pytest

from agents import labels
from agents.reconciler.actions import (
    Action,
    Drain,
    Lift,
    Mark,
    Reboot,
    Replace,
    Requeue,
    Restart,
    Tell,
    Unmark,
    Withdraw,
)
from agents.reconciler.memory import Climb, Memory
from agents.reconciler.observed import Condition, Machine, Observed
from agents.reconciler.plan import Plan, plan
from agents.reconciler.report import IN_SERVICE, OUT, PERSON, code, text
from agents.reconciler.wanted import Wanted
from tests.support.slurmnodes import NOW, drained, moment, node
from tests.unit.agents.reconciler.things import READY, evidence, machine, observed, pod, wanted

DEAD = {"Ready": Condition("Unknown", "kubelet is silent")}
SINCE = NOW - 100


def actions(
    seen: Observed, asked: Wanted | None = None, memory: Memory | None = None
) -> list[Action]:
    return list(plan(seen, asked or wanted(), memory or {}, NOW).actions)


def test_healthy_nodes_need_no_action_and_no_memory() -> None:
    made = plan(observed(), wanted(), {}, NOW)

    assert (made.actions, made.memory, made.out) == ((), {}, ())
    assert code(made) == IN_SERVICE
    assert text(made) == "3 of 3 nodes are in service"


# --- Drains --------------------------------------------------------------------------------------


def test_node_is_drained_for_a_finding_about_its_machine() -> None:
    seen = observed(machine("machine-1", is_cordoned=True))

    reason = (
        "slurmstack:kubernetes:cordoned: machine machine-1 is cordoned; to end this drain, run "
        "`kubectl uncordon` for this machine"
    )
    assert actions(seen) == [Drain("cpu-1", reason)]


@pytest.mark.parametrize(
    "record",
    [
        drained("cpu-1", "broken-fan"),
        drained("cpu-1", ""),
        drained("cpu-1", "slurmstack:leave"),
        drained("cpu-1", "slurmstack:check:gpu-xid: 79"),
        node("cpu-1", "DOWN", reason="taken by ada"),
        node("cpu-1", reason="a note of an operator"),
    ],
)
def test_drain_does_not_overwrite_an_existing_reason(record: object) -> None:
    seen = observed(machine("machine-1", is_cordoned=True), record)  # type: ignore[arg-type]

    assert not [one for one in actions(seen) if isinstance(one, Drain)]


def test_node_with_a_terminating_pod_is_not_drained() -> None:
    seen = observed(machine("machine-1", is_cordoned=True), pod("cpu-1", leaves=NOW + 60))

    assert actions(seen) == []


def test_pod_stuck_on_a_dead_machine_causes_a_drain() -> None:
    seen = observed(machine("machine-1", conditions=DEAD), pod("cpu-1", leaves=NOW + 60))

    assert [type(one) for one in actions(seen)] == [Drain]


def test_end_of_a_drain_requires_the_same_reason_and_time() -> None:
    reason = "slurmstack:check:disk: full"
    seen = observed(drained("cpu-1", reason, extra=evidence(SINCE + 1)))

    made = plan(seen, wanted(), {}, NOW)
    assert made.actions == (Lift("cpu-1", reason, moment(SINCE)),)
    assert made.out[0].doing == "the reconciler now returns the node to service"


def all_cordoned(replicas: int) -> Observed:
    machines = (machine(f"machine-{i}", is_cordoned=True) for i in range(replicas))
    return observed(*machines, replicas=replicas)


@pytest.mark.parametrize(
    ("replicas", "share", "most"), [(10, 0.1, 1), (10, 0.35, 3), (3, 0.1, 1), (4, 1.0, 4)]
)
def test_share_limits_drains_and_excluded_nodes_are_reported(
    replicas: int, share: float, most: int
) -> None:
    made = plan(all_cordoned(replicas), wanted(replicas, share=share), {}, NOW)

    assert len(made.actions) == most
    assert [out.needs_person for out in made.out].count(True) == replicas - most
    assert code(made) == (PERSON if most < replicas else OUT)


def test_drains_by_others_do_not_use_up_the_share() -> None:
    cordon = "slurmstack:kubernetes:cordoned: machine machine-0"
    ours, theirs = drained("cpu-0", cordon), drained("cpu-0", "broken-fan")
    seen = [machine("machine-0", is_cordoned=True), machine("machine-1", is_cordoned=True)]

    assert actions(observed(*seen, ours), wanted(share=0.1)) == []
    assert len(actions(observed(*seen, theirs), wanted(share=0.1))) == 1


def test_nodes_on_dead_machines_are_drained_first() -> None:
    seen = observed(machine("machine-0", is_cordoned=True), machine("machine-1", conditions=DEAD))

    (drain,) = actions(seen, wanted(share=0.1))
    assert str(drain).startswith("drain node cpu-1: slurmstack:kubernetes:not-ready: ")


# --- Jobs of a lost node -------------------------------------------------------------------------

LOST = drained(
    *("cpu-1", "slurmstack:kubernetes:not-ready: x", "MIXED", "DRAIN", "NOT_RESPONDING"),
    alloc_cpus=2,
)


def test_jobs_are_requeued_when_slurmd_and_machine_are_lost() -> None:
    seen = observed(machine("machine-1", conditions=DEAD), LOST)

    assert actions(seen) == [Requeue("cpu-1", LOST.reason)]


@pytest.mark.parametrize(
    "fields",
    [
        {"alloc_cpus": 0},
        {"state": frozenset({"MIXED", "DRAIN"})},
        {"state": frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"})},
        {"reason": "broken-fan"},
    ],
)
def test_jobs_stay_if_slurmd_responds_or_others_drained_the_node(
    fields: dict[str, object],
) -> None:
    seen = observed(machine("machine-1", conditions=DEAD), LOST.model_copy(update=fields))

    assert actions(seen) == []


def test_jobs_on_a_healthy_machine_are_not_requeued() -> None:
    assert not [one for one in actions(observed(LOST)) if isinstance(one, Requeue)]


# --- Marks on machines ---------------------------------------------------------------------------

XID = "slurmstack:check:gpu-xid: Xid 79"
FAILED = evidence(NOW - 10, failed=["gpu-xid"])
BROKEN = drained("cpu-1", XID, extra=FAILED)
TAINT = {"key": labels.UNHEALTHY, "effect": "NoSchedule"}
MARK = {**READY, labels.CONDITION_UNHEALTHY: Condition("True", "", NOW - 50)}
MARKED = machine("machine-1", taints=(TAINT,), conditions=MARK)


def marks(seen: Observed) -> list[Action]:
    return [one for one in actions(seen) if isinstance(one, Mark | Unmark)]


def test_drain_for_hardware_marks_the_machine_once() -> None:
    assert marks(observed(BROKEN)) == [Mark("machine-1", f"cpu-1: {XID}")]
    assert marks(observed(BROKEN, MARKED)) == []


@pytest.mark.parametrize(
    "half",
    [replace(MARKED, taints=()), replace(MARKED, conditions=READY)],
    ids=["only condition", "only taint"],
)
def test_incomplete_mark_is_completed(half: Machine) -> None:
    assert marks(observed(BROKEN, half)) == [Mark("machine-1", f"cpu-1: {XID}")]


def test_drain_for_another_cause_does_not_mark_the_machine() -> None:
    full = drained("cpu-1", "slurmstack:check:disk: full", extra=evidence(NOW, failed=["disk"]))

    assert marks(observed(full)) == []
    assert marks(observed(drained("cpu-1", "gpu-xid"))) == []


def test_failure_before_a_move_does_not_mark_the_new_machine() -> None:
    moved = pod("cpu-1", machine="machine-0", started=NOW - 5)

    assert marks(observed(BROKEN, moved)) == []


def test_mark_is_removed_after_checks_pass_on_the_machine() -> None:
    well = node("cpu-1", extra=evidence(NOW - 10))

    assert marks(observed(well, MARKED)) == [Unmark("machine-1")]


@pytest.mark.parametrize(
    "record",
    [
        node("cpu-1", extra=evidence(NOW - 60)),
        node("cpu-1"),
        node("cpu-1", extra=FAILED),
        drained("cpu-1", "broken-fan", extra=evidence(NOW - 10)),
    ],
)
def test_mark_stays_until_checks_have_passed_on_the_machine(record: object) -> None:
    assert marks(observed(record, MARKED)) == []  # type: ignore[arg-type]


def test_taint_by_others_is_not_a_mark() -> None:
    theirs = machine("machine-1", taints=({"key": "other", "effect": "NoSchedule"},))

    assert marks(observed(theirs, node("cpu-1", extra=evidence(NOW)))) == []


# --- Ladder of repairs ---------------------------------------------------------------------------

FULL = ("recheck", "restart", "reboot", "replace")
KEY = ("cpu-1", "gpu-xid")
ASKED = wanted(ladders={"gpu-xid": FULL})


def step(memory: Memory, seen: Observed | None = None, at: int = NOW) -> Plan:
    return plan(seen or observed(BROKEN, MARKED), ASKED, memory, at)


def climbed(made: Plan) -> Climb:
    return made.memory[KEY]


def carried(made: Plan) -> dict[tuple[str, str], Climb]:
    """Return the memory of a plan, as it is after all actions have been carried out."""
    return {key: replace(climb, done=True) for key, climb in made.memory.items()}


def test_recheck_is_the_first_step() -> None:
    made = step({})

    assert made.actions == ()
    assert climbed(made) == Climb(0, NOW, done=True)
    assert code(made) == OUT


def test_each_step_waits_twice_as_long_as_the_previous() -> None:
    memory: Memory = carried(step({}))
    at, taken = NOW, []
    for rung, kind in enumerate((Restart, Reboot, Replace, Tell)):
        patience = ASKED.back_off * 2**rung
        assert not step(memory, at=at + patience - 1).actions or kind is Replace
        at += patience
        made = step(memory, at=at)
        taken += [one for one in made.actions if isinstance(one, kind)]
        memory = carried(made)

    assert [type(one) for one in taken] == [Restart, Reboot, Replace, Tell]
    assert step(memory, at=at + 1_000_000).actions == (), "the event has already been sent"
    assert code(step(memory, at=at + 1)) == PERSON


def test_steps_contain_the_ids_of_the_observed_objects() -> None:
    def at_rung(rung: int) -> Action:
        made = step({KEY: Climb(rung - 1, 0, done=True, target="x")})
        return made.actions[-1]

    assert at_rung(1) == Restart(KEY, "cpu-1-uid")
    assert at_rung(2) == Reboot(KEY, "machine-1", "machine-1-boot", NOW)
    assert at_rung(3) == Replace(KEY, "machine-1", "machine-1-uid", "cloud://machine-1")
    assert at_rung(4) == Tell(KEY, "Xid 79")


BEGUN = Climb(1, NOW - 10, done=False, target="cpu-1-uid")


def test_step_that_was_not_carried_out_is_repeated() -> None:
    made = step({KEY: BEGUN})

    assert made.actions == (Restart(KEY, "cpu-1-uid"),)
    assert climbed(made) == BEGUN


def test_step_that_succeeded_without_an_answer_is_not_repeated() -> None:
    restarted = pod("cpu-1", uid="another", started=NOW - 5)

    made = step({KEY: BEGUN}, observed(BROKEN, MARKED, restarted))

    assert made.actions == ()
    assert climbed(made).done


def test_restart_waits_until_jobs_end() -> None:
    busy = BROKEN.model_copy(update={"alloc_cpus": 1})

    made = step({KEY: Climb(0, 0, done=True)}, observed(busy, MARKED))

    assert made.actions == ()
    assert made.out[0].doing == "the step 'restart' waits until the node's jobs end"


OVER = {KEY: Climb(1, 0, done=True, target="x")}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            BROKEN.model_copy(update={"alloc_cpus": 1}),
            "waits until the jobs of node cpu-1 on machine machine-1 end",
        ),
        (
            pod("cpu-2", machine="machine-1"),
            (
                "waits for you: node cpu-2 on machine machine-1 is not drained; drain node cpu-2 "
                "with scontrol"
            ),
        ),
        (
            pod("cpu-9", machine="machine-1"),
            (
                "waits for you: pod cpu-9 also runs on machine machine-1; move pod cpu-9 to "
                "another machine"
            ),
        ),
        (
            pod("login-0", machine="machine-1", is_worker=False),
            (
                "waits for you: pod login-0 also runs on machine machine-1; move pod login-0 to "
                "another machine"
            ),
        ),
    ],
)
def test_machine_in_use_is_not_rebooted(changed: object, message: str) -> None:
    made = step(OVER, observed(BROKEN, MARKED, changed))  # type: ignore[arg-type]

    assert made.actions == ()
    assert f"the step 'reboot' {message}" in [out.doing for out in made.out]


def test_machine_of_an_undrained_node_is_not_rebooted() -> None:
    refused = node("cpu-1", "IDLE", "INVALID_REG")
    memory = {("cpu-1", "size"): Climb(0, 0, done=True)}

    made = plan(observed(refused), wanted(ladders={"size": ["recheck", "reboot"]}), memory, NOW)

    assert made.actions == ()
    assert made.out[0].needs_person


def test_new_machine_is_not_replaced() -> None:
    new = replace(MARKED, created=NOW - 60)

    made = step({KEY: Climb(2, 0, done=True, target="x")}, observed(BROKEN, new))

    assert made.actions == ()
    assert made.out[0].doing == (
        "the step 'replace' waits until machine machine-1 is 3600 s old "
        "('reconciler.replace_age'); now, the machine is 60 s old"
    )


def test_share_limits_the_number_of_concurrent_repairs() -> None:
    broken = [drained(f"cpu-{i}", XID, extra=FAILED) for i in range(3)]
    memory = {(f"cpu-{i}", "gpu-xid"): Climb(0, 0, done=True) for i in range(3)}

    made = plan(observed(*broken), wanted(share=0.4), memory, NOW)
    restarts = [one for one in made.actions if isinstance(one, Restart)]
    assert len(restarts) == 1
    again = plan(observed(*broken), wanted(share=0.4), carried(made), NOW + 60)
    assert not [one for one in again.actions if isinstance(one, Restart)]


def test_causes_of_a_node_are_repaired_one_after_the_other() -> None:
    away = pod("cpu-1", is_ready=False)
    memory = {KEY: Climb(0, 0, done=True), ("cpu-1", "pod"): Climb(0, 0, done=True)}

    made = step(memory, observed(BROKEN, MARKED, away))

    assert len(made.actions) == 1
    assert {out.doing for out in made.out} >= {
        "the step 'restart' waits until the node's repair because of 'gpu-xid' has ended"
    }


@pytest.mark.parametrize(
    ("cause", "seen", "useless"),
    [
        ("not-ready", observed(machine("machine-1", conditions=DEAD)), {Restart, Reboot}),
        (
            "unscheduled",
            observed(pod("cpu-1", is_ready=False, machine="")),
            {Restart, Reboot, Replace},
        ),
    ],
)
def test_steps_that_cannot_help_are_skipped(
    cause: str, seen: Observed, useless: set[type[Action]]
) -> None:
    memory: Memory = {}
    asked = wanted(ladder=FULL)
    taken: set[type[Action]] = set()
    for at in range(NOW, NOW + 10_000, 100):
        made = plan(seen, asked, memory, at)
        memory, taken = carried(made), taken | {type(one) for one in made.actions}

    assert Tell in taken
    assert not taken & useless


@pytest.mark.parametrize(
    "seen",
    [
        observed(drained("cpu-1", "broken-fan")),
        observed(BROKEN, MARKED, replace(MARKED, is_cordoned=True)),
    ],
    ids=["drain by others", "cordon"],
)
def test_drain_by_others_or_a_cordon_pauses_the_repairs(seen: Observed) -> None:
    memory = {KEY: Climb(0, 0, done=True)}

    made = step(memory, seen)

    assert not [one for one in made.actions if isinstance(one, Restart)]
    assert made.memory == memory


def test_finished_repair_is_forgotten_after_the_configured_time() -> None:
    memory = {KEY: Climb(1, NOW - 10, done=True, target="x")}

    gone = step(memory, observed())
    assert climbed(gone).gone == NOW
    assert step(gone.memory, observed(), NOW + ASKED.remember - 1).memory == gone.memory
    assert step(gone.memory, observed(), NOW + ASKED.remember).memory == {}


def test_recurring_fault_continues_with_the_next_step() -> None:
    made = step({KEY: Climb(0, NOW - 1000, done=True, gone=NOW - 500)})

    assert made.actions == (Restart(KEY, "cpu-1-uid"),)


def test_new_absence_of_a_node_begins_a_new_wait() -> None:
    key = ("cpu-1", "pod")
    memory = {key: Climb(1, NOW - 9000, done=True, target="old", gone=NOW - 8000)}

    made = plan(observed(pod("cpu-1", is_ready=False)), wanted(), memory, NOW)

    assert made.actions == ()
    assert made.memory[key] == Climb(1, NOW, done=True)


def test_memory_of_removed_nodes_is_deleted() -> None:
    assert plan(observed(), wanted(), {("cpu-7", "pod"): Climb(0, NOW)}, NOW).memory == {}


# --- Requests for a reboot -----------------------------------------------------------------------

REQUESTED = replace(MARKED, annotations={labels.REBOOT: f"machine-1-boot {NOW - 60}"})
REBOOTING = {KEY: Climb(2, NOW - 60, done=True, target="machine-1-boot")}


def test_reboot_request_stays_until_it_times_out() -> None:
    assert step(REBOOTING, observed(BROKEN, REQUESTED)).actions == ()


@pytest.mark.parametrize(
    ("memory", "seen"),
    [
        (REBOOTING, observed(BROKEN, replace(REQUESTED, boot="another"))),
        (REBOOTING, observed(BROKEN.model_copy(update={"alloc_cpus": 1}), REQUESTED)),
        (REBOOTING, observed(drained("cpu-1", "broken-fan"), REQUESTED)),
        (REBOOTING, observed(REQUESTED)),
        ({}, observed(REQUESTED)),
    ],
    ids=["rebooted", "jobs started", "drain by others", "healthy", "not in the memory"],
)
def test_obsolete_reboot_request_is_withdrawn(memory: Memory, seen: Observed) -> None:
    made = step(memory, seen)

    assert [one for one in made.actions if isinstance(one, Withdraw)] == [Withdraw("machine-1")]
