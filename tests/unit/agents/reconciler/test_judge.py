"""The reconciler's findings about a node. A finding is a problem with its cause."""

import pytest

from agents.reconciler.judge import Kind, View, views
from agents.reconciler.observed import Condition, Observed
from agents.reconciler.wanted import Wanted
from tests.support.slurmnodes import NOW, drained, moment, node
from tests.unit.agents.reconciler.things import (
    CONF,
    READY,
    evidence,
    machine,
    observed,
    pod,
    wanted,
)


def view(seen: Observed, asked: Wanted | None = None, name: str = "cpu-1") -> View:
    return views(seen, asked or wanted(), NOW)[name]


def causes(seen: Observed, asked: Wanted | None = None) -> list[str]:
    return [finding.cause for finding in view(seen, asked).findings]


def test_healthy_nodes_have_no_findings() -> None:
    found = views(observed(), wanted(), NOW)

    assert list(found) == ["cpu-0", "cpu-1", "cpu-2"]
    assert all(one.is_in_service and not one.findings for one in found.values())


def test_node_outside_the_settings_gets_no_findings() -> None:
    assert "cpu-2" not in views(observed(), wanted(2), NOW)


def on_demand() -> Wanted:
    asked = wanted()
    nodeset = asked.nodesets["cpu"].model_copy(update={"on_demand": True})
    return asked.model_copy(update={"nodesets": {"cpu": nodeset}})


@pytest.mark.parametrize(
    "seen",
    [
        observed(without="record cpu-1"),
        observed(node("cpu-1", "IDLE", "POWERED_DOWN")),
        observed(node("cpu-1", "IDLE", "POWERING_DOWN")),
        observed(node("cpu-1", "ALLOCATED", "POWERING_UP")),
        observed(node("cpu-1", "DOWN", reason="slurmstack:start:capacity: no machine")),
    ],
)
def test_node_on_demand_that_does_not_run_gets_no_findings(seen: Observed) -> None:
    assert "cpu-1" not in views(seen, on_demand(), NOW)
    assert "cpu-1" in views(seen, wanted(), NOW)


def test_node_on_demand_that_runs_gets_findings() -> None:
    broken = observed(machine("machine-1", conditions={"Ready": Condition("False")}))

    assert causes(broken, on_demand()) == ["not-ready"]


# --- Findings from Kubernetes --------------------------------------------------------------------


def changed(**fields: object) -> Observed:
    return observed(machine("machine-1", **fields))


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_node_on_an_unready_machine_is_drained(status: str) -> None:
    seen = changed(conditions={"Ready": Condition(status, "NodeStatusUnknown: no word")})

    (finding,) = view(seen).findings
    assert (finding.cause, finding.drains) == ("not-ready", True)
    assert "no word" in finding.text


def test_missing_machine_has_the_finding_not_ready() -> None:
    assert causes(observed(without="machine machine-1")) == ["not-ready"]


def test_cordon_and_announced_maintenance_drain_but_cause_no_repair() -> None:
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


def test_configured_condition_with_status_true_is_a_fault() -> None:
    def disk(status: str) -> View:
        return view(changed(conditions={**READY, "DiskPressure": Condition(status)}))

    (finding,) = disk("True").findings
    assert (finding.cause, finding.kind, finding.drains) == ("disk-pressure", Kind.FAULT, True)
    assert not disk("False").findings
    assert not disk("Unknown").findings
    assert disk("Unknown").is_unclear
    assert not disk("False").is_unclear


def test_other_conditions_and_taints_are_ignored() -> None:
    seen = changed(
        conditions={**READY, "MemoryPressure": Condition("True")},
        taints=({"key": "nvidia.com/gpu", "effect": "NoSchedule"},),
    )

    assert causes(seen) == []


# --- Missing nodes -------------------------------------------------------------------------------


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
def test_finding_names_the_cause_of_an_absent_node(seen: Observed, cause: str) -> None:
    (finding,) = view(seen).findings

    assert (finding.cause, finding.kind) == (cause, Kind.ABSENT)


def test_dead_machine_gives_one_finding_and_hides_its_consequences() -> None:
    dead = machine("machine-1", conditions={"Ready": Condition("Unknown")})
    seen = observed(dead, pod("cpu-1", is_ready=False), node("cpu-1", "DOWN", "NOT_RESPONDING"))

    assert causes(seen) == ["not-ready"]


def test_terminating_pod_within_its_grace_period_is_not_missing() -> None:
    leaving = pod("cpu-1", leaves=NOW + 60)
    record = drained("cpu-1", "slurmstack:leave")

    found = view(observed(leaving, record)).findings
    assert {finding.kind for finding in found} == {Kind.HELD}


# --- Configuration -------------------------------------------------------------------------------


def test_slurmd_that_started_before_the_configuration_takes_no_jobs() -> None:
    seen = view(observed(node("cpu-1", started=moment(NOW - 60)), configured=NOW - 30))

    (finding,) = seen.findings
    assert (finding.cause, finding.kind, finding.drains) == ("config", Kind.HELD, False)
    assert (seen.is_in_service, seen.takes_jobs) == (True, False)


@pytest.mark.parametrize(
    "seen",
    [
        observed(node("cpu-1", started=moment(NOW - 30)), configured=NOW - 30),
        # The machine's clock is behind.
        observed(node("cpu-1", started=moment(NOW - 32)), configured=NOW - 30),
        # The time of the configuration is unknown.
        observed(node("cpu-1", started=moment(NOW - 60))),
    ],
)
def test_slurmd_that_started_after_the_configuration_takes_jobs(seen: Observed) -> None:
    assert view(seen).takes_jobs


def test_starting_pod_hides_the_finding_about_an_old_configuration() -> None:
    old, starts = node("cpu-1", started=moment(NOW - 60)), pod("cpu-1", is_ready=False)

    assert causes(observed(old, starts, configured=NOW - 30)) == ["pod"]


def test_failed_pod_takes_no_jobs_even_before_slurm_notices() -> None:
    seen = view(observed(pod("cpu-1", is_ready=False, why="slurmd: CrashLoopBackOff")))

    assert (seen.is_in_service, seen.takes_jobs) == (True, False)


# --- Size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cpus": 1}, "CPUs in Slurm's record of the node: 1, expected 2"),
        ({"memory": 500}, "MiB of memory in Slurm's record of the node: 500, expected 1000"),
        (
            {"gres": "gpu:h100:7(S:0-1),shard:28"},
            "GPUs in Slurm's record of the node: 7, expected 8",
        ),
        ({"gres": ""}, "GPUs in Slurm's record of the node: 0, expected 8"),
        ({"gres": "gpu:h100:4,gpu:a100:3"}, "GPUs in Slurm's record of the node: 7, expected 8"),
    ],
)
def test_node_of_the_wrong_size_is_reported(fields: dict[str, object], message: str) -> None:
    (finding,) = view(observed(node("cpu-1", **fields))).findings

    assert (finding.cause, finding.text) == ("size", message)


def test_gpus_of_several_types_are_added_up_and_shards_ignored() -> None:
    assert causes(observed(node("cpu-1", gres="shard:64,gpu:a:3,gpu:b:5(S:0)"))) == []


def test_refused_registration_is_reported_as_wrong_size() -> None:
    assert causes(observed(node("cpu-1", "IDLE", "INVALID_REG"))) == ["size"]


def test_node_with_an_outdated_pod_has_no_size_finding() -> None:
    small, old = node("cpu-1", cpus=1), pod("cpu-1", conf="CPUs=1")

    assert causes(observed(small, old)) == []
    assert causes(observed(small, pod("cpu-1", conf=CONF))) == ["size"]


# --- Drains by slurmstack and by others ----------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        drained("cpu-1", "broken-fan"),
        drained("cpu-1", ""),
        drained("cpu-1", "slurmstack", "IDLE", "DRAIN"),
        drained("cpu-1", "Kill task failed", "IDLE", "DRAIN"),
        drained("cpu-1", "taken by ada", "DOWN"),
        drained("cpu-1", "Not responding", "IDLE", "DRAIN"),
        drained("cpu-1", "broken-fan : Duplicate jobid", "IDLE", "DRAIN"),
        drained("cpu-1", "Duplicate jobids, ask ada", "IDLE", "DRAIN"),
    ],
)
def test_drain_by_others_is_reported_and_not_lifted(record: object) -> None:
    found = view(observed(record))  # type: ignore[arg-type]

    assert found.is_foreign
    assert [(one.cause, one.kind) for one in found.findings] == [("drained", Kind.HELD)]
    assert not found.may_be_lifted


CHECK = "slurmstack:check:disk: /tmp is full (97 %)"
CORDON = "slurmstack:kubernetes:cordoned: machine machine-1"
SINCE = NOW - 100


@pytest.mark.parametrize("reason", [CHECK, CORDON])
def test_drain_by_slurmstack_is_lifted_after_checks_passed(reason: str) -> None:
    passed = drained("cpu-1", reason, extra=evidence(SINCE + 1))

    assert view(observed(passed)).may_be_lifted


@pytest.mark.parametrize("reason", ["Duplicate jobid", "Duplicate jobid : Not responding"])
def test_node_drained_for_a_duplicate_job_id_returns_to_service(reason: str) -> None:
    passed = evidence(SINCE + 1)
    empty = view(observed(drained("cpu-1", reason, extra=passed)))
    busy = view(observed(drained("cpu-1", reason, extra=passed, alloc_cpus=1)))
    ends = view(observed(drained("cpu-1", reason, "IDLE", "DRAIN", "COMPLETING", extra=passed)))

    assert [(one.cause, one.kind) for one in empty.findings] == [("duplicate-job", Kind.HELD)]
    assert not empty.is_foreign
    assert empty.may_be_lifted
    assert not busy.may_be_lifted
    assert not ends.may_be_lifted


@pytest.mark.parametrize(
    ("reason", "extra"),
    [
        (CHECK, ""),
        (CHECK, "notes of an operator"),
        (CHECK, evidence(SINCE)),
        (CHECK, evidence(SINCE + 1, failed=["disk"])),
        (CHECK, evidence(SINCE + 1, failed=["gpu-xid"])),
        (CHECK, evidence(SINCE + 1, unknown=["disk"])),
        (CORDON, evidence(SINCE)),
        (CORDON, evidence(SINCE + 1, failed=["disk"])),
        ("slurmstack:leave", evidence(SINCE + 1)),
        ("slurmstack:jail", evidence(SINCE + 1)),
        ("broken-fan", evidence(SINCE + 1)),
        ("Duplicate jobid", evidence(SINCE)),
        ("Duplicate jobid", evidence(SINCE + 1, failed=["disk"])),
    ],
)
def test_drain_stays_without_passed_checks_or_for_other_reasons(reason: str, extra: str) -> None:
    assert not view(observed(drained("cpu-1", reason, extra=extra))).may_be_lifted


def test_unknown_result_of_another_check_does_not_keep_a_drain() -> None:
    passed = drained("cpu-1", CHECK, extra=evidence(SINCE + 1, unknown=["clock"]))

    assert view(observed(passed)).may_be_lifted


def test_drain_caused_by_kubernetes_is_lifted_if_no_checks_run() -> None:
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
def test_cause_of_a_drained_node_is_the_failed_check(
    reason: str, failed: list[str], cause: str
) -> None:
    found = view(observed(drained("cpu-1", reason, extra=evidence(SINCE + 1, failed=failed))))

    assert [(one.cause, one.kind) for one in found.findings] == [(cause, Kind.FAULT)]


def test_forged_check_name_is_not_reported_as_the_cause() -> None:
    reason = f"slurmstack:check:{'x' * 1000}: forged"
    found = view(observed(drained("cpu-1", reason)))

    assert found.failed_check is None
    assert not found.may_be_lifted


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
def test_node_with_a_problem_in_kubernetes_or_slurm_stays_drained(seen: Observed) -> None:
    assert not view(seen).may_be_lifted


def test_reason_is_recognized_after_slurmctld_appended_text() -> None:
    silent = f"{CHECK} : Not responding"
    back = drained("cpu-1", silent, since=SINCE, extra=evidence(SINCE + 1))

    assert view(observed(back)).failed_check == "disk"
    assert view(observed(back)).may_be_lifted
