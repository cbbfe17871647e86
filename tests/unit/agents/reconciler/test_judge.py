"""What is found wrong with a node, and what is not."""

import pytest

from agents.reconciler.judge import Kind, View, views
from agents.reconciler.observed import Condition, Observed
from agents.reconciler.wanted import Wanted
from tests.unit.agents.reconciler.things import (
    CONF,
    NOW,
    READY,
    drained,
    evidence,
    machine,
    moment,
    node,
    observed,
    pod,
    wanted,
)


def view(seen: Observed, asked: Wanted | None = None, name: str = "cpu-1") -> View:
    return views(seen, asked or wanted(), NOW)[name]


def causes(seen: Observed, asked: Wanted | None = None) -> list[str]:
    return [finding.cause for finding in view(seen, asked).findings]


def test_of_nodes_that_are_well_nothing_is_found() -> None:
    found = views(observed(), wanted(), NOW)

    assert list(found) == ["cpu-0", "cpu-1", "cpu-2"]
    assert all(one.is_in_service and not one.findings for one in found.values())


def test_a_node_beyond_what_is_wanted_is_not_judged() -> None:
    assert "cpu-2" not in views(observed(), wanted(2), NOW)


# --- What Kubernetes says ------------------------------------------------------------------------


def changed(**fields: object) -> Observed:
    return observed(machine("machine-1", **fields))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_machine_that_is_not_ready_is_a_cause_to_drain(status: str) -> None:
    seen = changed(conditions={"Ready": Condition(status, "NodeStatusUnknown: no word")})

    (finding,) = view(seen).findings
    assert (finding.cause, finding.drains) == ("not-ready", True)
    assert "no word" in finding.text


def test_a_machine_that_is_gone_is_not_ready() -> None:
    assert causes(observed(without="machine machine-1")) == ["not-ready"]


def test_a_cordon_and_announced_maintenance_are_wishes_of_a_person() -> None:
    key = "lab.example/maintenance"
    by_annotation = changed(annotations={key: "", "other": "x"})
    by_taint = changed(taints=({"key": key, "effect": "NoSchedule"},))

    for seen, cause in (
        (changed(is_cordoned=True), "cordoned"),
        (by_annotation, "maintenance"),
        (by_taint, "maintenance"),
    ):
        (finding,) = view(seen).findings
        assert (finding.cause, finding.kind, finding.drains) == (cause, Kind.WISH, True)


def test_a_condition_of_the_settings_is_a_fault_when_true_and_unclear_when_unknown() -> None:
    def disk(status: str) -> View:
        return view(changed(conditions={**READY, "DiskPressure": Condition(status)}))

    (finding,) = disk("True").findings
    assert (finding.cause, finding.kind, finding.drains) == ("disk-pressure", Kind.FAULT, True)
    assert not disk("False").findings
    assert not disk("Unknown").findings
    assert disk("Unknown").is_unclear
    assert not disk("False").is_unclear


def test_conditions_and_taints_that_nobody_named_are_no_cause() -> None:
    seen = changed(
        conditions={**READY, "MemoryPressure": Condition("True")},
        taints=({"key": "nvidia.com/gpu", "effect": "NoSchedule"},),
    )

    assert causes(seen) == []


# --- What is missing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (observed(without="pod cpu-1"), "pod"),
        (observed(pod("cpu-1", is_ready=False, why="CrashLoopBackOff")), "pod"),
        (observed(pod("cpu-1", is_ready=False, machine="", why="no room")), "unscheduled"),
        (observed(pod("cpu-1", leaves=NOW - 1000)), "pod"),
        (observed(without="record cpu-1"), "slurmd"),
        (observed(node("cpu-1", "DOWN", reason="Not responding")), "slurmd"),
        (observed(node("cpu-1", "IDLE", "NOT_RESPONDING")), "slurmd"),
    ],
)
def test_a_node_that_is_missing_is_told_by_what_it_lacks(seen: Observed, cause: str) -> None:
    (finding,) = view(seen).findings

    assert (finding.cause, finding.kind) == (cause, Kind.ABSENT)


def test_what_a_dead_machine_explains_is_not_told_again() -> None:
    dead = machine("machine-1", conditions={"Ready": Condition("Unknown")})
    seen = observed(dead, pod("cpu-1", is_ready=False), node("cpu-1", "DOWN", "NOT_RESPONDING"))

    assert causes(seen) == ["not-ready"]


def test_a_pod_that_has_time_to_leave_is_not_missing() -> None:
    leaving = pod("cpu-1", leaves=NOW + 60)
    record = drained("cpu-1", "slurmstack:leave")

    found = view(observed(leaving, record)).findings
    assert {finding.kind for finding in found} == {Kind.HELD}


# --- Its configuration ---------------------------------------------------------------------------


def test_a_slurmd_older_than_the_configuration_takes_no_jobs() -> None:
    seen = view(observed(node("cpu-1", started=moment(NOW - 60)), configured=NOW - 30))

    (finding,) = seen.findings
    assert (finding.cause, finding.kind, finding.drains) == ("config", Kind.HELD, False)
    assert (seen.is_in_service, seen.takes_jobs) == (True, False)


@pytest.mark.parametrize(
    "seen",
    [
        observed(node("cpu-1", started=moment(NOW - 30)), configured=NOW - 30),
        # Its machine's clock is behind.
        observed(node("cpu-1", started=moment(NOW - 32)), configured=NOW - 30),
        # Nobody says when the configuration came.
        observed(node("cpu-1", started=moment(NOW - 60))),
    ],
)
def test_a_slurmd_as_new_as_the_configuration_takes_jobs(seen: Observed) -> None:
    assert view(seen).takes_jobs


def test_an_older_slurmd_is_not_told_of_a_pod_that_starts() -> None:
    old, starts = node("cpu-1", started=moment(NOW - 60)), pod("cpu-1", is_ready=False)

    assert causes(observed(old, starts, configured=NOW - 30)) == ["pod"]


def test_a_pod_that_fails_before_slurm_notices_takes_no_jobs() -> None:
    seen = view(observed(pod("cpu-1", is_ready=False, why="slurmd: CrashLoopBackOff")))

    assert (seen.is_in_service, seen.takes_jobs) == (True, False)


# --- Its size ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cpus": 1}, "CPUs 1, expected 2"),
        ({"memory": 500}, "memory 500, expected 1000"),
        ({"gres": "gpu:h100:7(S:0-1),shard:28"}, "GPUs 7, expected 8"),
        ({"gres": ""}, "GPUs 0, expected 8"),
        ({"gres": "gpu:h100:4,gpu:a100:3"}, "GPUs 7, expected 8"),
    ],
)
def test_a_node_of_another_size_than_wanted_is_found(fields: dict[str, object], told: str) -> None:
    (finding,) = view(observed(node("cpu-1", **fields))).findings

    assert (finding.cause, finding.text) == ("size", told)


def test_shards_and_slices_of_the_right_number_are_the_right_size() -> None:
    assert causes(observed(node("cpu-1", gres="shard:64,gpu:a:3,gpu:b:5(S:0)"))) == []


def test_a_node_whose_registration_slurm_refuses_is_of_the_wrong_size() -> None:
    assert causes(observed(node("cpu-1", "IDLE", "INVALID_REG"))) == ["size"]


def test_a_pod_from_before_an_edit_waits_for_its_turn() -> None:
    small, old = node("cpu-1", cpus=1), pod("cpu-1", conf="CPUs=1")

    assert causes(observed(small, old)) == []
    assert causes(observed(small, pod("cpu-1", conf=CONF))) == ["size"]


# --- Whose drain ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        drained("cpu-1", "broken-fan"),
        drained("cpu-1", ""),
        drained("cpu-1", "slurmstack", "IDLE", "DRAIN"),
        drained("cpu-1", "Kill task failed", "IDLE", "DRAIN"),
        drained("cpu-1", "taken by ada", "DOWN"),
        drained("cpu-1", "Not responding", "IDLE", "DRAIN"),
    ],
)
def test_another_s_drain_is_told_and_left_alone(record: object) -> None:
    found = view(observed(record))  # type: ignore[arg-type]

    assert found.is_foreign
    assert [(one.cause, one.kind) for one in found.findings] == [("drained", Kind.HELD)]
    assert not found.may_be_lifted


CHECK = "slurmstack:check:disk: /tmp is full (97 %)"
CORDON = "slurmstack:kubernetes:cordoned: machine machine-1"
SINCE = NOW - 100


@pytest.mark.parametrize("reason", [CHECK, CORDON])
def test_a_drain_of_ours_is_lifted_when_its_checks_have_passed_since(reason: str) -> None:
    passed = drained("cpu-1", reason, extra=evidence(SINCE + 1))

    assert view(observed(passed)).may_be_lifted


@pytest.mark.parametrize(
    ("reason", "extra"),
    [
        (CHECK, ""),
        (CHECK, "somebody's notes"),
        (CHECK, evidence(SINCE)),
        (CHECK, evidence(SINCE + 1, failed=["disk"])),
        (CHECK, evidence(SINCE + 1, failed=["gpu-xid"])),
        (CHECK, evidence(SINCE + 1, unknown=["disk"])),
        (CORDON, evidence(SINCE)),
        (CORDON, evidence(SINCE + 1, failed=["disk"])),
        ("slurmstack:leave", evidence(SINCE + 1)),
        ("slurmstack:jail", evidence(SINCE + 1)),
        ("broken-fan", evidence(SINCE + 1)),
    ],
)
def test_without_a_check_that_has_passed_since_no_drain_is_lifted(reason: str, extra: str) -> None:
    assert not view(observed(drained("cpu-1", reason, extra=extra))).may_be_lifted


def test_another_check_that_could_not_run_keeps_no_drain() -> None:
    passed = drained("cpu-1", CHECK, extra=evidence(SINCE + 1, unknown=["clock"]))

    assert view(observed(passed)).may_be_lifted


def test_where_no_checks_run_kubernetes_own_word_lifts_its_drain() -> None:
    assert view(observed(drained("cpu-1", CORDON))).may_be_lifted


PASSED = drained("cpu-1", CORDON, extra=evidence(SINCE + 1))
LOST = machine("machine-1", conditions={**READY, "DiskPressure": Condition("Unknown")})


@pytest.mark.parametrize(
    ("reason", "failed", "cause"),
    [
        (CHECK, ["disk"], "disk"),
        (CHECK, ["clock", "disk"], "disk"),
        (CHECK, ["clock"], "clock"),
        (CORDON, ["clock"], "clock"),
    ],
)
def test_a_check_that_fails_on_a_drained_node_is_the_cause_that_it_is_out_for(
    reason: str, failed: list[str], cause: str
) -> None:
    found = view(observed(drained("cpu-1", reason, extra=evidence(SINCE + 1, failed=failed))))

    assert [(one.cause, one.kind) for one in found.findings] == [(cause, Kind.FAULT)]


@pytest.mark.parametrize(
    "seen",
    [
        observed(PASSED, machine("machine-1", is_cordoned=True)),
        observed(PASSED, LOST),
        observed(PASSED, without="machine machine-1"),
        observed(PASSED, without="pod cpu-1"),
        observed(PASSED, pod("cpu-1", is_ready=False)),
        observed(PASSED, pod("cpu-1", leaves=NOW + 60)),
        *(
            observed(drained("cpu-1", CORDON, "DRAIN", state, extra=evidence(SINCE + 1)))
            for state in ("DOWN", "NOT_RESPONDING", "INVALID_REG", "POWERED_DOWN")
        ),
    ],
)
def test_a_node_that_is_not_up_or_not_known_to_be_well_stays_out(seen: Observed) -> None:
    assert not view(seen).may_be_lifted


def test_what_slurmctld_adds_to_a_reason_of_ours_leaves_it_ours() -> None:
    silent = f"{CHECK} : Not responding"
    back = drained("cpu-1", silent, since=SINCE, extra=evidence(SINCE + 1))

    assert view(observed(back)).failed_check == "disk"
    assert view(observed(back)).may_be_lifted
