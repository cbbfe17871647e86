"""The exporter converts Slurm's tables to Prometheus metrics."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.exporter import measure, naming
from agents.exporter.rows import Job, Node, Partition, Reservation, Tables
from agents.slurm import Statistics
from tests.support.metrics import Series, series
from tests.unit.agents.exporter.recordings import RECORDED, tables

NOW = 1_800_000_000
GIB = 1 << 30


def node(name: str = "gpu-0", **fields: Any) -> Node:
    given: dict[str, Any] = {
        "states": frozenset({"IDLE"}),
        "partitions": ("main",),
        "cpus": 64,
        "cpus_of_jobs": 0,
        "memory": 512 * GIB,
        "memory_of_jobs": 0,
        "memory_free": None,
        "load": None,
        "gpus": {},
        "gpus_of_jobs": {},
        "accounts_gpus": False,
        "reason": "",
        "since": 0,
        "machine": "",
        "images": None,
    }
    return Node(name, **(given | fields))


def job(state: str = "RUNNING", **fields: Any) -> Job:
    given: dict[str, Any] = {
        "reason": "None",
        "partitions": ("main",),
        "account": "lab",
        "uid": 2000,
        "tasks": 1,
        "eligible": NOW - 60,
        "cpus": 1,
        "memory": GIB,
        "gpus": 0,
        "node": "",
        "id": "",
        "nodes": "",
        "start": 0,
    }
    return Job(state, **(given | fields))


def cluster(
    top: int = 10, names: Mapping[int, str] | None = None, pairs: int = 100, **given: Any
) -> Series:
    found = Tables(**{"partitions": [Partition("main", "up")], **given})
    known = names or {}
    return series(measure.cluster(found, NOW, top, pairs, lambda uid: known.get(uid, str(uid))))


def places(found: Series) -> set[tuple[str, str]]:
    """Return the job's id and the node of each series `slurm_job_node`."""
    pattern = re.compile(r'slurm_job_node\{.*job_id="(.*?)",node="(.*?)".*\}')
    return {(match[1], match[2]) for name in found if (match := pattern.fullmatch(name))}


def test_recording_of_a_real_cluster_gives_the_expected_metrics() -> None:
    recorded = tables()
    now = max(node.since for node in recorded.nodes) + 90
    found = series(measure.cluster(recorded, now, 10, 10, lambda _: "researcher"))

    assert found['slurm_nodes{state="draining"}'] == 2
    assert found['slurm_nodes_drained{cause="gpu-ecc"}'] == 1
    assert found['slurm_nodes_drained{cause="foreign"}'] == 1
    assert found['slurm_node_drained_seconds{cause="foreign",node="cpu-1"}'] == 90
    assert found['slurm_node_cpus_allocated{node="cpu-0"}'] == 2
    assert found['slurm_node_memory_allocated_bytes{node="cpu-0"}'] == 200 << 20
    assert found['slurm_jobs{state="running"}'] == 1
    assert found['slurm_jobs{state="pending"}'] == 14
    assert found['slurm_jobs_pending{reason="resources"}'] == 11
    assert found['slurm_jobs_pending{reason="held"}'] == 1
    assert found['slurm_node_jobs_failed{node="cpu-1"}'] == 1
    assert found['slurm_node_info{machine="m7",node="cpu-0"}'] == 1
    assert found['slurmstack_image_pulls_total{node="cpu-0"}'] == 3
    assert found['slurmstack_image_pull_bytes_total{node="cpu-0"}'] == 154_000_000
    assert found['slurmstack_image_pull_duration_seconds_total{node="cpu-0"}'] == 21.5
    assert found['slurmstack_image_hits_total{node="cpu-0"}'] == 40
    assert found['slurmstack_image_failures_total{node="cpu-0"}'] == 1
    assert 'slurmstack_image_pulls_total{node="cpu-1"}' not in found
    assert places(found) == {("1", "cpu-0"), ("1", "cpu-1")}
    assert found['slurm_user_jobs{state="pending",user="researcher"}'] == 14
    assert found['slurm_account_jobs{account="ada",state="pending"}'] == 1
    assert found['slurm_partition_cpus_allocated{partition="main"}'] == 3
    assert found['slurm_partition_cpus_requested{partition="main"}'] == 22
    assert 0 < found['slurm_partition_pending_seconds{partition="main",share="1"}'] < 600
    assert found['slurm_partition_waited_seconds{partition="main",share="0.5"}'] == 1
    assert found['slurm_partition_waited_seconds{partition="main",share="1"}'] == 2
    assert not [name for name in found if "gpus" in name], (
        "the recorded cluster does not account GPUs"
    )


def test_states_without_nodes_or_jobs_have_series_with_value_0() -> None:
    found = cluster()

    assert {f'slurm_nodes{{state="{state}"}}' for state in naming.NODE_STATES} <= set(found)
    assert {f'slurm_jobs{{state="{state}"}}' for state in naming.JOB_STATES} <= set(found)
    assert found['slurm_nodes_drained{cause="foreign"}'] == 0
    assert found['slurm_partition_nodes{partition="main",state="idle"}'] == 0


def test_node_in_two_partitions_is_counted_once_in_each() -> None:
    both = node(partitions=("main", "gpu"), gpus={"h100": 8}, accounts_gpus=True)
    found = cluster(
        nodes=[both, node("gpu-1")],
        partitions=[Partition("main", "up"), Partition("gpu", "drain"), Partition("none", "up")],
    )

    assert found['slurm_partition_nodes{partition="main",state="idle"}'] == 2
    assert found['slurm_partition_cpus{partition="gpu"}'] == 64
    assert found['slurm_partition_memory_bytes{partition="main"}'] == 1024 * GIB
    assert found['slurm_partition_gpus{partition="gpu"}'] == 8
    assert found['slurm_partition_cpus{partition="none"}'] == 0
    assert found['slurm_partition_state{partition="gpu",state="drain"}'] == 1
    assert found['slurm_partition_state{partition="gpu",state="up"}'] == 0


def test_suspended_job_holds_memory_and_gpus_of_its_node() -> None:
    suspended = job("SUSPENDED", cpus=8, memory=4 * GIB, gpus=2)
    found = cluster(
        nodes=[node(memory_of_jobs=4 * GIB, gpus={"h100": 8}, accounts_gpus=True)],
        jobs=[suspended],
    )

    assert found['slurm_partition_nodes{partition="main",state="idle"}'] == 0
    assert found['slurm_node_state{node="gpu-0",state="mixed"}'] == 1
    assert found['slurm_partition_memory_allocated_bytes{partition="main"}'] == 4 * GIB
    assert found['slurm_partition_gpus_allocated{partition="main"}'] == 2
    assert found['slurm_partition_cpus_allocated{partition="main"}'] == 0


def test_gpus_of_jobs_are_shown_only_if_slurm_counts_gpus() -> None:
    gpus = node(gpus={"h100": 8}, gpus_of_jobs={"h100": 2}, accounts_gpus=True)
    queue = [job(gpus=2), job("PENDING", gpus=4, tasks=3)]
    found = cluster(nodes=[gpus], jobs=queue)

    assert found['slurm_node_gpus{node="gpu-0",type="h100"}'] == 8
    assert found['slurm_node_gpus_allocated{node="gpu-0",type="h100"}'] == 2
    assert found['slurm_partition_gpus_allocated{partition="main"}'] == 2
    assert found['slurm_partition_gpus_requested{partition="main"}'] == 12
    assert found['slurm_user_gpus_requested{user="2000"}'] == 12
    assert found['slurm_account_gpus_allocated{account="lab"}'] == 2

    uncounted = cluster(nodes=[node(gpus={"h100": 8})], jobs=queue)
    assert uncounted['slurm_node_gpus_allocated{node="gpu-0",type="h100"}'] == 0
    assert not [name for name in uncounted if "gpus" in name and "node" not in name]


def test_several_nodes_may_report_the_same_machine() -> None:
    found = cluster(nodes=[node(machine="m7"), node("gpu-1"), node("gpu-2", machine="m7")])

    assert {name for name in found if name.startswith("slurm_node_info")} == {
        f'slurm_node_info{{machine="m7",node="{name}"}}' for name in ("gpu-0", "gpu-2")
    }


def test_running_job_is_shown_per_node_with_its_owner() -> None:
    found = cluster(
        names={2000: "ada"},
        jobs=[job(id="17_3", nodes="gpu-[0-1]"), job("PENDING"), job("COMPLETED", node="gpu-1")],
    )

    labels = 'account="lab",job_id="17_3",node="{}",partition="main",user="ada"'
    assert {name for name in found if name.startswith("slurm_job_node")} == {
        f"slurm_job_node{{{labels.format(name)}}}" for name in ("gpu-0", "gpu-1")
    }


def test_only_the_largest_users_and_accounts_appear_in_job_series() -> None:
    small = job(id="2", nodes="gpu-1", uid=4000, account="small")
    found = cluster(1, jobs=[job(id="1", nodes="gpu-0", cpus=8), small])

    shown = [name for name in found if name.startswith("slurm_job_node")]
    (first,) = (name for name in shown if 'job_id="1"' in name)
    (second,) = (name for name in shown if 'job_id="2"' in name)
    assert 'account="lab"' in first
    assert 'user="2000"' in first
    assert 'account="other"' in second
    assert 'user="other"' in second


def test_job_has_series_for_all_its_nodes_or_for_none() -> None:
    queue = [
        job(id="1", cpus=1, nodes="gpu-9"),
        job(id="2", cpus=300, nodes="gpu-[0-2]"),
        job(id="3", cpus=200, nodes="gpu-[3-4]"),
        job(id="4", cpus=1, nodes="gpu-9"),
    ]

    def shown(pairs: int) -> dict[str, int]:
        return Counter(number for number, _ in places(cluster(pairs=pairs, jobs=queue)))

    assert shown(100) == {"1": 1, "2": 3, "3": 2, "4": 1}
    assert shown(6) == {"1": 1, "2": 3, "3": 2}, "the older of two equally large jobs is shown"
    assert shown(4) == {"1": 1, "2": 3}, "the limit is too low for both nodes of the third job"
    assert shown(3) == {"2": 3}
    assert shown(2) == {"3": 2}, "the limit is too low for the three nodes of job 2"
    assert shown(0) == {}


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12), st.integers(0, 20))
def test_number_of_job_node_series_never_exceeds_the_limit(
    sizes: list[tuple[int, int]], pairs: int
) -> None:
    queue = [
        job(id=str(number), cpus=cpus, nodes=f"n[1-{count}]")
        for number, (cpus, count) in enumerate(sizes)
    ]
    found = Counter(number for number, _ in places(cluster(pairs=pairs, jobs=queue)))

    assert sum(found.values()) <= pairs
    assert all(count == sizes[int(number)][1] for number, count in found.items())
    left = pairs - sum(found.values())
    missing = [count for number, (_, count) in enumerate(sizes) if str(number) not in found]
    assert all(count > left for count in missing), "every job that fits is shown"


def test_ended_jobs_allocate_no_resources() -> None:
    found = cluster(jobs=[job("COMPLETED"), job("COMPLETING"), job("SUSPENDED"), job("TIMEOUT")])

    assert found['slurm_partition_cpus_allocated{partition="main"}'] == 1
    assert found['slurm_partition_cpus_requested{partition="main"}'] == 0
    assert found['slurm_jobs{state="completed"}'] == 1


def test_job_pending_in_two_partitions_is_counted_once_in_total() -> None:
    found = cluster(
        jobs=[job("PENDING", partitions=("main", "gpu"))],
        partitions=[Partition("main", "up"), Partition("gpu", "up")],
    )

    assert found['slurm_partition_jobs{partition="main",state="pending"}'] == 1
    assert found['slurm_partition_jobs{partition="gpu",state="pending"}'] == 1
    assert found['slurm_jobs{state="pending"}'] == 1


def test_largest_accounts_have_their_own_series_and_others_share_one() -> None:
    queue = [
        job(account="small", cpus=1),
        job("PENDING", account="waits", cpus=2, tasks=10),
        job(account="large", cpus=50),
        job("COMPLETED", account="over", cpus=1000),
    ]
    found = cluster(2, jobs=queue)

    shown = {name for name in found if name.startswith("slurm_account_cpus_allocated")}
    assert shown == {
        f'slurm_account_cpus_allocated{{account="{name}"}}' for name in ("large", "other", "waits")
    }
    assert found['slurm_account_cpus_requested{account="waits"}'] == 20
    assert found['slurm_account_cpus_allocated{account="other"}'] == 1
    assert found['slurm_account_jobs{account="other",state="completed"}'] == 1
    assert cluster(0, jobs=queue)['slurm_account_cpus_allocated{account="other"}'] == 51


def test_accounts_with_the_same_label_share_a_series() -> None:
    found = cluster(jobs=[job(account="ada@lab"), job(account="ada@hall"), job(account="other")])

    assert found['slurm_account_jobs{account="ada",state="running"}'] == 2
    assert found['slurm_account_jobs{account="other",state="running"}'] == 1


def test_users_without_a_name_are_shown_by_uid() -> None:
    found = cluster(names={2000: "ada"}, jobs=[job(uid=2000), job(uid=4000)])

    assert found['slurm_user_jobs{state="running",user="ada"}'] == 1
    assert found['slurm_user_jobs{state="running",user="4000"}'] == 1


@given(st.lists(st.text(), min_size=1, max_size=20), st.integers(0, 5))
def test_series_are_unique_and_complete_for_any_account_names(
    accounts: list[str], top: int
) -> None:
    families = measure.cluster(
        Tables(jobs=[job(account=account) for account in accounts]), NOW, top, 0, str
    )
    (jobs,) = (family for family in families if family.name == "slurm_account_jobs")
    names = [tuple(sample.labels.values()) for sample in jobs.samples]

    assert len(names) == len(set(names)) <= 2 * (top + 1)
    assert sum(sample.value for sample in jobs.samples) == len(accounts)


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({}, {}),
        ({10: 1}, {0.5: 10, 0.9: 10, 1.0: 10}),
        ({10: 9, 1000: 1}, {0.5: 10, 0.9: 10, 1.0: 1000}),
        ({30: 1, 20: 4, 10: 5}, {0.5: 10, 0.9: 20, 1.0: 30}),
    ],
)
def test_quantiles_are_computed_from_wait_times_of_jobs(
    waits: dict[float, int], expected: dict[float, float]
) -> None:
    assert dict(measure.quantiles(waits)) == expected


def waits(what: str, **given: Any) -> Series:
    """Return the series of seconds that users' jobs have waited so far (`pending`), or waited
    before they started (`waited`)."""
    name = f"slurm_user_{what}_seconds"
    return {one: value for one, value in cluster(**given).items() if one.startswith(name)}


def test_wait_times_of_accounts_users_and_partitions_are_shown() -> None:
    began = job(node="gpu-0", eligible=NOW - 400, start=NOW - 100)
    found = cluster(names={2000: "ada"}, jobs=[job("PENDING", eligible=NOW - 60), began])

    for labels in ('account="lab",', 'partition="main",', ""):
        owner = labels.partition("=")[0] or "user"
        labelled = f'{labels}share="1"' if labels else 'share="1",user="ada"'
        assert found[f"slurm_{owner}_pending_seconds{{{labelled}}}"] == 60
        assert found[f"slurm_{owner}_waited_seconds{{{labelled}}}"] == 300


def test_jobs_that_are_not_yet_eligible_have_no_wait_time() -> None:
    later = job("PENDING", eligible=NOW + 3600, tasks=99)

    assert waits("pending", jobs=[later, job("PENDING", eligible=NOW - 5)]) == {
        f'slurm_user_pending_seconds{{share="{share}",user="2000"}}': 5
        for share in ("0.5", "0.9", "1")
    }


def test_wait_times_of_all_but_the_largest_users_are_combined() -> None:
    large = job(cpus=100, node="gpu-0", eligible=NOW - 90, start=NOW - 80)
    others = [
        job(uid=uid, node="gpu-0", eligible=NOW - 100 * uid, start=NOW) for uid in range(1, 11)
    ]

    assert waits("waited", top=1, jobs=[large, *others]) == {
        **{
            f'slurm_user_waited_seconds{{share="{share}",user="2000"}}': 10
            for share in ("0.5", "0.9", "1")
        },
        'slurm_user_waited_seconds{share="0.5",user="other"}': 500,
        'slurm_user_waited_seconds{share="0.9",user="other"}': 900,
        'slurm_user_waited_seconds{share="1",user="other"}': 1000,
    }


@pytest.mark.parametrize(
    "state", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED", "COMPLETING", "SUSPENDED", "TIMEOUT"]
)
def test_recently_started_job_has_a_wait_time_in_any_state(state: str) -> None:
    began = job(state, node="gpu-0", eligible=NOW - 1000, start=NOW - 1000 + 7)

    assert set(waits("waited", jobs=[began]).values()) == {7}


@pytest.mark.parametrize(
    "fields",
    [
        # The start is only Slurm's estimate.
        {"state": "PENDING", "start": NOW + 60},
        # The job was requeued.
        {"state": "PENDING", "node": "gpu-0", "start": NOW - 60},
        # The job was cancelled before it started.
        {"state": "CANCELLED", "start": NOW - 60},
        # The job started long ago.
        {"state": "RUNNING", "node": "gpu-0", "start": NOW - 1801},
    ],
)
def test_job_without_a_recent_start_has_no_wait_time(fields: dict[str, Any]) -> None:
    found = cluster(jobs=[job(**{"eligible": NOW - 9000, **fields})])

    assert not [name for name in found if "_waited_seconds" in name]


NOT_YET = [
    ("JobHeldUser", 0),
    # The job was held after it became eligible.
    ("JobHeldAdmin", NOW - 60),
    ("Dependency", 0),
    ("DependencyNeverSatisfied", NOW - 60),
    ("BeginTime", NOW + 3600),
    # slurmctld has not evaluated the job yet.
    ("None", NOW + 3600),
]


@pytest.mark.parametrize(("reason", "eligible"), NOT_YET)
def test_jobs_that_cannot_start_yet_have_no_pending_time(reason: str, eligible: int) -> None:
    found = cluster(jobs=[job("PENDING", reason=reason, eligible=eligible)])

    assert not [name for name in found if name.startswith("slurm_partition_pending_seconds")]


@pytest.mark.parametrize(("reason", "eligible"), NOT_YET)
def test_requested_resources_exclude_jobs_that_cannot_start_yet(reason: str, eligible: int) -> None:
    counted = node(gpus={"h100": 8}, accounts_gpus=True)
    later = job("PENDING", reason=reason, eligible=eligible, cpus=100, gpus=8, tasks=5)
    waits = job("PENDING", reason="Resources", cpus=2, gpus=1)
    found = cluster(nodes=[counted], jobs=[later, waits])

    assert found['slurm_jobs{state="pending"}'] == 6
    requested = {
        name.partition("{")[0]: value for name, value in found.items() if "requested" in name
    }
    assert requested == {
        **dict.fromkeys((f"slurm_{by}_cpus_requested" for by in ("account", "partition")), 2),
        **dict.fromkeys((f"slurm_{by}_gpus_requested" for by in ("account", "partition")), 1),
        "slurm_user_cpus_requested": 2,
        "slurm_user_gpus_requested": 1,
        "slurm_partition_memory_requested_bytes": GIB,
    }


def test_unusual_characters_in_names_are_kept() -> None:
    odd = 'a "name" \\ of two, 名前'
    families = measure.cluster(Tables(jobs=[job(account=odd)]), NOW, 1, 0, str)
    found = series(families)

    assert found[f'slurm_account_jobs{{account="{odd}",state="running"}}'] == 1


def test_times_of_sdiag_are_shown_in_seconds() -> None:
    answer = json.loads((RECORDED / "sdiag.json").read_text())["statistics"]
    found = series(measure.scheduler(Statistics.model_validate(answer), 10, str))

    assert found["slurm_scheduler_cycles_total"] == answer["schedule_cycle_total"] > 0
    assert found["slurm_scheduler_cycle_max_seconds"] == pytest.approx(
        answer["schedule_cycle_max"] / 1e6
    )
    assert found["slurm_jobs_started_total"] == answer["jobs_started"]
    assert found["slurm_statistics_start_timestamp_seconds"] == answer["req_time_start"]["number"]
    (nodes,) = (
        one for one in answer["rpcs_by_message_type"] if one["message_type"] == "REQUEST_NODE_INFO"
    )
    assert found['slurm_rpcs_total{type="REQUEST_NODE_INFO"}'] == nodes["count"]
    assert found['slurm_rpc_duration_seconds_total{type="REQUEST_NODE_INFO"}'] == pytest.approx(
        nodes["total_time"] / 1e6
    )


def calls(*users: tuple[int, int, int], top: int = 10, **names: str) -> Series:
    """Return the series about RPCs of users. Each user is a tuple: uid, number of RPCs, and their
    total duration in microseconds."""
    answer = json.loads((RECORDED / "sdiag.json").read_text())["statistics"]
    answer["rpcs_by_user"] = [
        {
            # sdiag prints an empty name if it cannot resolve the user.
            "user": "",
            "user_id": uid,
            "count": count,
            "total_time": time,
            "average_time": {"set": True, "infinite": False, "number": time // count},
        }
        for uid, count, time in users
    ]
    statistics = Statistics.model_validate(answer)
    found = series(measure.scheduler(statistics, top, lambda uid: names.get(f"u{uid}", str(uid))))
    return {name: value for name, value in found.items() if name.startswith("slurm_user_rpc")}


def test_rpc_counts_and_durations_are_shown_per_user() -> None:
    assert calls((2000, 60, 3_000_000), (64030, 5, 1000), u2000="ada") == {
        'slurm_user_rpcs_total{user="ada"}': 60,
        'slurm_user_rpcs_total{user="64030"}': 5,
        'slurm_user_rpc_duration_seconds_total{user="ada"}': pytest.approx(3),
        'slurm_user_rpc_duration_seconds_total{user="64030"}': pytest.approx(0.001),
    }
    assert calls() == {}


def test_only_users_with_the_longest_rpc_time_are_shown() -> None:
    users = ((1, 1, 5_000), (2, 100, 9_000), (3, 1000, 1_000), (4, 1, 7_000))
    shown = {name for name in calls(*users, top=2) if name.startswith("slurm_user_rpcs")}

    # No series combines the other users. Its total would fall when one of them joins the largest
    # users, but a counter must never fall.
    assert shown == {'slurm_user_rpcs_total{user="2"}', 'slurm_user_rpcs_total{user="4"}'}
    assert calls(*users, top=0) == {}


def test_rpcs_of_users_with_the_same_label_are_added_up() -> None:
    found = calls((1, 2, 10), (2, 3, 20), u1="ada@lab", u2="ada@hall")

    assert found['slurm_user_rpcs_total{user="ada"}'] == 5
    assert found['slurm_user_rpc_duration_seconds_total{user="ada"}'] == pytest.approx(30e-6)


def test_usage_of_the_jail_and_its_volumes_is_shown() -> None:
    jail = os.statvfs_result((1 << 20, 4096, 1000, 300, 200, 50, 20, 19, 0, 255))
    endless = os.statvfs_result((4096, 4096, 2000, 300, 100, 0, 0, 0, 0, 255))
    found = series(measure.jail({"jail": jail, "homes": endless}))

    assert found == {
        'slurmstack_jail_size_bytes{volume="jail"}': 1000 * 4096,
        'slurmstack_jail_size_bytes{volume="homes"}': 2000 * 4096,
        'slurmstack_jail_available_bytes{volume="jail"}': 200 * 4096,
        'slurmstack_jail_available_bytes{volume="homes"}': 100 * 4096,
        'slurmstack_jail_files{volume="jail"}': 50,
        'slurmstack_jail_files_free{volume="jail"}': 20,
    }, "files are shown only if the file system limits their number"


def test_reservations_and_licenses_are_shown() -> None:
    recorded = tables()
    found = series(measure.reservations(recorded.reservations))
    (course,) = recorded.reservations
    assert found['slurm_reservation_nodes{reservation="course"}'] == 1
    assert found['slurm_reservation_start_timestamp_seconds{reservation="course"}'] == course.start
    assert found['slurm_reservation_end_timestamp_seconds{reservation="course"}'] == course.end

    named = [Reservation("ada@lab", 1, 100, 300), Reservation("ada@hall", 2, 50, 200)]
    assert series(measure.reservations([*named, Reservation("ada@lab_7", 4, 1, 2)])) == {
        'slurm_reservation_nodes{reservation="ada"}': 3,
        'slurm_reservation_start_timestamp_seconds{reservation="ada"}': 50,
        'slurm_reservation_end_timestamp_seconds{reservation="ada"}': 300,
        'slurm_reservation_nodes{reservation="ada_7"}': 4,
        'slurm_reservation_start_timestamp_seconds{reservation="ada_7"}': 1,
        'slurm_reservation_end_timestamp_seconds{reservation="ada_7"}': 2,
    }

    found = series(measure.licenses(recorded.licenses))
    assert found['slurm_licenses{license="cad"}'] == 10
    assert found['slurm_licenses_used{license="cad"}'] == 2
    assert found['slurm_licenses_free{license="cad"}'] == 8
    assert found['slurm_licenses_reserved{license="cad"}'] == 0
