"""The exporter's words for states, reasons and causes come from short, fixed lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.exporter import naming

FLAGS = (
    *("ALLOCATED", "BLOCKED", "CLOUD", "COMPLETING", "DOWN", "DRAIN", "DYNAMIC_NORM", "ERROR"),
    *("FAIL", "FUTURE", "IDLE", "INVALID_REG", "MAINTENANCE", "MIXED", "NOT_RESPONDING"),
    *("PLANNED", "POWERED_DOWN", "POWERING_UP", "REBOOT_ISSUED", "RESERVED", "SOMETHING_NEW"),
)


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("IDLE+DYNAMIC_NORM", "idle"),
        ("IDLE+CLOUD+POWERED_DOWN", "powered_down"),
        ("IDLE+CLOUD+POWERING_UP", "powering_up"),
        ("MIXED+DYNAMIC_NORM", "mixed"),
        ("ALLOCATED+RESERVED", "allocated"),
        ("IDLE+RESERVED", "reserved"),
        ("IDLE+PLANNED", "planned"),
        ("IDLE+COMPLETING", "completing"),
        ("IDLE+DRAIN", "drained"),
        ("MIXED+DRAIN", "draining"),
        ("IDLE+COMPLETING+DRAIN", "draining"),
        ("DOWN+DRAIN+NOT_RESPONDING", "down"),
        ("IDLE+NOT_RESPONDING", "not_responding"),
        ("IDLE+MAINTENANCE+RESERVED", "maintenance"),
        ("FUTURE+DYNAMIC_NORM", "future"),
        ("UNKNOWN", "unknown"),
    ],
)
def test_state_of_a_node_is_one_word(states: str, word: str) -> None:
    assert naming.node_state(frozenset(states.split("+"))) == word


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("IDLE+DYNAMIC_NORM", "mixed"),
        ("IDLE+DRAIN", "draining"),
        ("ALLOCATED", "allocated"),
        ("DOWN", "down"),
    ],
)
def test_node_with_memory_of_suspended_jobs_is_not_idle(states: str, word: str) -> None:
    assert naming.node_state(frozenset(states.split("+")), 1 << 30) == word


@given(st.frozensets(st.sampled_from(FLAGS)))
def test_any_node_has_one_of_the_exported_states(states: frozenset[str]) -> None:
    assert naming.node_state(states) in naming.NODE_STATES


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("slurmstack:check:gpu-ecc: 3 errors", "gpu-ecc"),
        ("slurmstack:check:gpu-ecc: 3 errors : Not responding", "gpu-ecc"),
        ("slurmstack:longcheck:nccl: 212 GB/s, expected at least 460", "nccl"),
        ("slurmstack:kubernetes:cordoned: machine m7", "cordoned"),
        ("slurmstack:leave", "leave"),
        ("slurmstack:jail", "jail"),
        ("slurmstack:place-3", "place"),
        ("slurmstack:", "foreign"),
        ("slurmstack:check:Ada's own <ada@example.org>: x", "foreign"),
        ("slurmstack:check:" + "a" * 50, "foreign"),
        ("broken fan, ask ada@example.org", "foreign"),
        ("Not responding", "foreign"),
        ("", "foreign"),
    ],
)
def test_cause_is_derived_from_the_drain_reason(reason: str, cause: str) -> None:
    assert naming.cause(reason) == cause


@given(st.text())
def test_cause_contains_no_text_of_a_reason_by_others(text: str) -> None:
    assert naming.cause(f"ask {text}") == naming.FOREIGN


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("Priority", "priority"),
        ("Resources", "resources"),
        ("JobHeldUser", "held"),
        ("JobHeldAdmin", "held"),
        ("DependencyNeverSatisfied", "dependency"),
        ("ReqNodeNotAvail", "nodes_unavailable"),
        ("PartitionDown", "partition"),
        ("QOSNotAllowed", "not_allowed"),
        ("QOSGrpCpuLimit", "limit"),
        ("AccountNotAllowed", "not_allowed"),
        ("AccountingPolicy", "limit"),
        ("AssocMaxJobsLimit", "limit"),
        ("MaxGRESPerAccount", "limit"),
        ("Licenses", "licenses"),
        ("ReservationDeleted", "reservation"),
        ("BeginTime", "begin_time"),
        ("None", "none"),
        ("SomethingNew", "other"),
    ],
)
def test_pending_reason_is_one_of_a_few_words(reason: str, word: str) -> None:
    assert naming.pending_reason(reason) == word
    assert word in naming.PENDING_REASONS


@given(st.text())
def test_any_job_has_one_of_the_exported_states(state: str) -> None:
    assert naming.job_state(state) in naming.JOB_STATES
    assert naming.job_state("RUNNING") == naming.RUNNING


@pytest.mark.parametrize(
    ("name", "label"),
    [("ada", "ada"), ("", "none"), ("ada@example.org", "ada"), ("@lab", "@lab"), ("a b", "a b")],
)
def test_label_contains_no_email_address(name: str, label: str) -> None:
    assert naming.label(name) == label


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("course", "course"),
        ("maintenance_2026", "maintenance_2026"),
        ("ada@example.org_7", "ada_7"),
        ("ada_b@example.org_7", "ada_b_7"),
        ("ada@cluster_1.example.org_12", "ada_12"),
        ("ada@example.org", "ada"),
        ("@lab_3", "@lab_3"),
        ("resv_4", "resv_4"),
    ],
)
def test_reservation_label_contains_no_email_address(name: str, label: str) -> None:
    assert naming.reservation(name) == label


@given(st.text(min_size=1), st.text(), st.integers(0, 9999))
def test_reservations_named_after_users_keep_their_number(
    user: str, host: str, number: int
) -> None:
    label = naming.reservation(f"{user}@{host}_{number}")
    assert "@" not in label[1:]
    assert label.endswith(f"_{number}")
