"""Whatever happens in a real Slurm is in the metrics within an interval."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from components import conventions as c
from tests.container.exporter.cluster import ENVIRONMENT, SLURM, USER, Cluster, Scrape, etc
from tests.support.containers import Start, put
from tests.support.slurmctld import kill_slurmd, start_slurmd
from tests.support.stack import alone

ODD = "$'a \"name\" \\\\ of {two}\\nlines, \\t\\x1f naïve, 名前'"
MACHINES = {node: f"machine-of-{node}" for node in ("cpu-0", "cpu-1")}
"""What `start_worker` tells slurmd."""
SECRETS = ("hunter2", "ada@example.org", "naïve", "名前")


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.controller.run("scancel --user=researcher")
    cluster.controller.run("scontrol update nodename=cpu-[0-1] state=resume || true")
    # A job that is still completing becomes cancelled while the next test counts such jobs.
    cluster.shows("nothing runs or ends", lambda seen: not in_work(seen))


def jobs(seen: Scrape, state: str) -> float:
    return seen.value("slurm_jobs", state=state)


def in_work(seen: Scrape) -> float:
    return jobs(seen, "running") + jobs(seen, "completing")


def places(seen: Scrape) -> set[tuple[str, str]]:
    """Jobs that run, each with each of its nodes."""
    return {(labels["job_id"], labels["node"]) for labels in seen.named("slurm_job_node")}


def machines(seen: Scrape) -> dict[str, str]:
    return {labels["node"]: labels["machine"] for labels in seen.named("slurm_node_info")}


def test_jobs_that_run_wait_are_held_and_fail_are_counted(cluster: Cluster) -> None:
    failed = jobs(cluster.now(), "failed")
    cluster.becomes(cluster.submit("--ntasks=3 --mem-per-cpu=100 --licenses=cad:2"), "RUNNING")
    cluster.becomes(cluster.submit("--ntasks=1 --mem=10", script="exit 3"), "FAILED")
    cluster.submit("--exclusive --array=0-9,15%2 --nodes=2 --mem=100")
    cluster.submit("--hold")

    def requested(seen: Scrape) -> bool:
        return seen.value("slurm_partition_cpus_requested", partition="main") == 11 * 2

    # To slurmctld an array waits for room from its first look at the queue on, seconds later.
    cluster.shows("the array waits for room", requested)
    seen = cluster.now(intervals=2)
    assert jobs(seen, "running") == 1
    assert jobs(seen, "failed") == failed + 1
    assert seen.value("slurm_licenses_used", license="cad") == 2
    assert jobs(seen, "pending") == 12
    assert seen.value("slurm_jobs_pending", reason="held") == 1
    assert seen.value("slurm_user_jobs", user=USER, state="pending") == 12
    assert seen.value("slurm_account_jobs", account="none", state="running") == 1
    assert seen.value("slurm_partition_jobs", partition="main", state="running") == 1
    assert seen.value("slurm_partition_cpus", partition="main") == 4
    assert seen.value("slurm_partition_cpus_allocated", partition="main") == 3
    assert seen.value("slurm_partition_memory_allocated_bytes", partition="main") == 300 << 20
    assert requested(seen)
    assert 0 <= seen.value("slurm_partition_pending_seconds", partition="main", share="1") < 60
    assert seen.value("slurm_licenses", license="cad") == 10
    allocated = (
        seen.value("slurm_node_memory_allocated_bytes", node=node) for node in ("cpu-0", "cpu-1")
    )
    assert sum(allocated) == 300 << 20
    assert seen.named("slurm_node_jobs_failed")


def counted(seen: Scrape) -> dict[str, float]:
    """What slurmctld has counted of jobs."""
    return {
        what: seen.value(f"slurm_jobs_{what}_total")
        for what in ("submitted", "started", "completed", "canceled", "failed")
    }


def test_each_step_of_a_jobs_life_is_counted_within_an_interval(cluster: Cluster) -> None:
    before = cluster.now()
    runs = cluster.submit("--ntasks=1 --mem=10")
    waits = cluster.submit("--ntasks=1 --hold")
    fails = cluster.submit("--ntasks=1 --mem=10", script="exit 3")
    cluster.becomes(runs, "RUNNING")
    cluster.becomes(fails, "FAILED")

    then = cluster.now()
    grown = {what: count - counted(before)[what] for what, count in counted(then).items()}
    # To slurmctld, one whose script fails has completed: it is the states that say how.
    assert grown == {"submitted": 3, "started": 2, "completed": 1, "canceled": 0, "failed": 0}
    assert jobs(then, "failed") == jobs(before, "failed") + 1
    assert jobs(then, "cancelled") == jobs(before, "cancelled")

    cluster.controller.run(f"scancel {runs} {waits}")
    for job in (runs, waits):
        cluster.becomes(job, "CANCELLED")
    seen = cluster.now()
    assert jobs(seen, "cancelled") == jobs(then, "cancelled") + 2
    assert counted(seen)["canceled"] == counted(then)["canceled"] + 2
    assert jobs(seen, "running") == jobs(seen, "pending") == 0


def test_a_job_that_is_held_is_no_longer_waited_for(cluster: Cluster) -> None:
    cluster.becomes(cluster.submit("--exclusive --nodes=2 --mem=100"), "RUNNING")
    waits = cluster.submit("--ntasks=2")

    seen = cluster.now()
    for owner in ({"partition": "main"}, {"account": "none"}, {"user": USER}):
        (by,) = owner
        for what in ("pending", "waited"):
            assert 0 <= seen.value(f"slurm_{by}_{what}_seconds", share="1", **owner) < 60
    assert seen.value("slurm_partition_cpus_requested", partition="main") == 2
    assert seen.value("slurm_user_cpus_requested", user=USER) == 2
    assert seen.named("slurm_partition_pending_seconds")

    cluster.controller.run(f"scontrol hold {waits}")
    seen = cluster.now()
    assert jobs(seen, "pending") == 1
    assert seen.value("slurm_partition_cpus_requested", partition="main") == 0
    assert seen.value("slurm_user_cpus_requested", user=USER) == 0
    assert not seen.named("slurm_partition_pending_seconds")


def test_a_node_that_dies_is_down_within_an_interval_of_slurm_saying_so(cluster: Cluster) -> None:
    worker = cluster.workers["cpu-1"]

    def state() -> str:
        return cluster.controller.run("sinfo --noheader --nodes=cpu-1 --format=%T").strip()

    def becomes(word: str) -> None:
        # slurmctld asks a node in intervals of a third of the time that it may be silent.
        deadline = time.monotonic() + 120
        while state().rstrip("*") != word:
            assert time.monotonic() < deadline, f"not {word}: {state()}"
            time.sleep(0.2)

    kill_slurmd(worker)
    try:
        becomes("down")
        seen = cluster.now()
    finally:
        start_slurmd(worker)
    assert seen.value("slurm_nodes", state="down") == 1
    assert seen.value("slurm_nodes", state="idle") == 1
    assert seen.value("slurm_node_state", node="cpu-1", state="down") == 1
    assert seen.value("slurm_partition_nodes", partition="main", state="down") == 1

    becomes("idle")
    seen = cluster.now()
    assert seen.value("slurm_nodes", state="idle") == 2
    assert seen.value("slurm_node_state", node="cpu-1", state="idle") == 1


@contextmanager
def private(cluster: Cluster, *hidden: str) -> Iterator[None]:
    """Slurm tells users only of their own."""

    def becomes(hidden: Sequence[str]) -> None:
        config = alone(lambda values: values.update(slurm={**SLURM, "private_data": hidden}))
        put(cluster.controller.container, etc(config))
        cluster.controller.run("scontrol reconfigure")

    becomes(hidden)
    try:
        yield
    finally:
        becomes([])


def test_what_is_private_is_told_to_an_exporter_that_is_slurms_own_user(cluster: Cluster) -> None:
    cluster.submit("--ntasks=1 --mem=10")
    cluster.shows("it runs", lambda seen: jobs(seen, "running") == 1)

    with private(cluster, "jobs", "nodes", "partitions", "reservations"):
        told = cluster.told(c.SLURM_ID)
        with pytest.raises(AssertionError, match="permission denied"):
            cluster.told(c.EXPORTER_ID)

    assert jobs(told, "running") == 1
    assert len(told.named("slurm_node_cpus")) == 2


def test_a_job_is_shown_on_its_nodes_while_it_runs(cluster: Cluster) -> None:
    wide = cluster.submit("--nodes=2 --ntasks=2 --mem=100")
    array = cluster.submit("--array=7 --ntasks=1 --mem=100")
    cluster.submit("--hold")

    seen = cluster.shows("both run", lambda seen: jobs(seen, "running") == 2)
    assert {(job, node) for job, node in places(seen) if job == wide} == {
        (wide, "cpu-0"),
        (wide, "cpu-1"),
    }
    assert sorted(job for job, _ in places(seen)) == sorted([wide, wide, f"{array}_7"])
    for labels in seen.named("slurm_job_node"):
        assert labels["partition"] == "main"
        assert labels["user"] == USER
        assert labels["account"] == "none"

    cluster.controller.run("scancel --user=researcher")
    cluster.shows("they are gone", lambda seen: not places(seen))


def test_a_node_says_which_machine_it_is_on(cluster: Cluster) -> None:
    assert machines(cluster.scrape()) == MACHINES
    assert "InstanceId=machine-of-cpu-0" in cluster.controller.run("scontrol show node cpu-0")


def test_the_jail_is_told_of_beside_slurm(cluster: Cluster) -> None:
    seen = cluster.scrape()
    size = seen.value("slurmstack_jail_size_bytes", volume="jail")
    assert 0 < seen.value("slurmstack_jail_available_bytes", volume="jail") < size
    assert seen.value("slurm_exporter_read_up", source="jail") == 1


def test_a_volume_in_the_jail_that_fills_up_is_told_by_its_name(cluster: Cluster) -> None:
    def available(seen: Scrape, volume: str) -> float:
        return seen.value("slurmstack_jail_available_bytes", volume=volume)

    before = cluster.scrape()
    blocks, size = cluster.exporter.run("stat -f -c '%b %S' /dev/shm").split()
    assert before.value("slurmstack_jail_size_bytes", volume="shm") == int(blocks) * int(size)
    cluster.exporter.run(f"head -c {8 << 20} /dev/zero >/dev/shm/data")
    try:
        cluster.shows(
            "there is less room",
            lambda seen: available(before, "shm") - available(seen, "shm") >= 8 << 20,
        )
    finally:
        cluster.exporter.run("rm /dev/shm/data")
    cluster.shows("there is room", lambda seen: available(seen, "shm") == available(before, "shm"))
    assert {labels["volume"] for labels in before.named("slurmstack_jail_size_bytes")} == {
        "jail",
        "shm",
    }


def test_a_node_that_somebody_drains_says_since_when_and_not_why(cluster: Cluster) -> None:
    cluster.controller.run(f"scontrol update nodename=cpu-0 state=drain reason={ODD}")
    cluster.controller.run(
        "scontrol update nodename=cpu-1 state=drain reason='slurmstack:check:gpu-ecc: 3 errors'"
    )

    seen = cluster.now()
    assert seen.value("slurm_nodes", state="drained") == 2
    assert seen.value("slurm_nodes_drained", cause="foreign") == 1
    assert seen.value("slurm_nodes_drained", cause="gpu-ecc") == 1
    assert seen.value("slurm_node_state", node="cpu-0", state="drained") == 1
    assert 0 <= seen.value("slurm_node_drained_seconds", node="cpu-0", cause="foreign") < 60
    assert not [secret for secret in SECRETS if secret in seen.text]

    cluster.controller.run("scontrol update nodename=cpu-[0-1] state=resume")
    seen = cluster.now()
    assert seen.value("slurm_nodes", state="idle") == 2
    assert not seen.named("slurm_node_drained_seconds")


def test_odd_names_break_nothing_and_are_not_told(cluster: Cluster) -> None:
    cluster.submit(
        f"--job-name={ODD} --comment=hunter2 --mail-user=ada@example.org",
        "--account=$'ada@example.org\\njob\\tRUNNING'",
    )
    cluster.submit(f"--account={ODD}", f"--job-name={ODD} --wckey=hunter2")

    seen = cluster.shows("both run", lambda seen: jobs(seen, "running") == 2)
    accounts = {labels["account"] for labels in seen.named("slurm_account_jobs")}
    assert "ada" in accounts
    assert "hunter2" not in seen.text
    assert "example.org" not in seen.text


def test_what_is_shown_is_by_prometheus_own_rules(cluster: Cluster, start_container: Start) -> None:
    cluster.submit("--exclusive --nodes=2 --mem=100")
    cluster.submit("--exclusive --nodes=2 --mem=100")
    seen = cluster.now()
    assert seen.named("slurm_partition_pending_seconds")
    promtool = start_container("monitoring")
    put(promtool, {"/tmp/metrics": seen.text})

    code, said = promtool.exec_run(["bash", "-c", "promtool check metrics </tmp/metrics"])
    assert code == 0, said


def test_only_so_many_users_and_accounts_have_series_of_their_own(cluster: Cluster) -> None:
    cluster.becomes(cluster.submit("--exclusive --nodes=2 --mem=100"), "RUNNING")
    for number in range(4):
        cluster.submit(f"--account=lab{number} --ntasks={number + 1} --mem-per-cpu=10")

    seen = cluster.now()
    assert jobs(seen, "pending") == 4
    requested = {
        labels["account"]: seen.value("slurm_account_cpus_requested", **labels)
        for labels in seen.named("slurm_account_cpus_requested")
    }
    assert requested == {"none": 0, "lab3": 4, "other": 3 + 2 + 1}


def test_reservations_and_the_schedulers_work_are_told(cluster: Cluster) -> None:
    cluster.controller.run(
        "scontrol create reservation reservationname=course users=researcher nodes=cpu-0 "
        "starttime=now+1days duration=60"
    )
    try:
        seen = cluster.now(intervals=2)
    finally:
        cluster.controller.run("scontrol delete reservationname=course")
    assert seen.value("slurm_reservation_nodes", reservation="course") == 1
    start = seen.value("slurm_reservation_start_timestamp_seconds", reservation="course")
    assert (
        seen.value("slurm_reservation_end_timestamp_seconds", reservation="course") - start == 3600
    )
    assert seen.value("slurm_scheduler_cycles_total") > 0
    assert seen.value("slurm_server_threads") > 0
    assert seen.value("slurm_rpcs_total", type="REQUEST_NODE_INFO") > 0
    assert not cluster.now(intervals=2).named("slurm_reservation_nodes")


def test_a_reservation_that_slurm_names_after_an_address_is_shown_without_it(
    cluster: Cluster,
) -> None:
    created = cluster.controller.run(
        "scontrol create reservation accounts=ada@example.org nodes=cpu-1 starttime=now+1days "
        "duration=60"
    )
    (number,) = re.findall(r"Reservation created: ada@example\.org_(\d+)", created)
    try:
        seen = cluster.now(intervals=2)
    finally:
        cluster.controller.run(f"scontrol delete reservationname=ada@example.org_{number}")
    assert seen.named("slurm_reservation_nodes") == [{"reservation": f"ada_{number}"}]
    assert "example.org" not in seen.text


def test_whose_calls_slurmctld_answers_is_told_of_as_many_users_as_are_wanted(
    cluster: Cluster,
) -> None:
    for _ in range(3):
        cluster.submit("--hold")

    assert len(cluster.now().named("slurm_user_rpcs_total")) == int(ENVIRONMENT["TOP"])
    told = cluster.told(c.EXPORTER_ID, TOP="10")
    assert told.value("slurm_user_rpcs_total", user=USER) >= 3
    assert told.value("slurm_user_rpc_duration_seconds_total", user=USER) > 0
    # slurmd's.
    assert told.value("slurm_user_rpcs_total", user="root") > 0


def test_slurmctld_is_asked_at_most_five_things_in_an_interval(cluster: Cluster) -> None:
    ours = re.compile(r"REQUEST_(JOB|NODE|PARTITION|LICENSE|RESERVATION|STATS)_INFO.*")

    def counts(seen: Scrape) -> tuple[float, dict[str, float]]:
        asked = {
            labels["type"]: seen.value("slurm_rpcs_total", **labels)
            for labels in seen.named("slurm_rpcs_total")
            if ours.fullmatch(labels["type"])
        }
        return seen.value("slurm_exporter_reads_total", source="scheduler"), asked

    def after(reads: float) -> tuple[float, dict[str, float]]:
        return counts(cluster.shows("further reads", lambda seen: counts(seen)[0] >= reads))

    # Nobody else has asked in between.
    first_reads, first = after(counts(cluster.scrape())[0] + 1)
    last_reads, last = after(first_reads + 6)
    grown = sum(last.values()) - sum(first.values())
    assert 4 * (last_reads - first_reads) <= grown <= 5 * (last_reads - first_reads)


def test_who_does_not_answer_is_said_to_be_down_and_shown_no_more(cluster: Cluster) -> None:
    cluster.shows("it is up", lambda seen: seen.value("slurm_up") == 1)
    cluster.controller.stop()
    down = cluster.shows(
        "nothing of it is shown",
        lambda seen: not seen.named("slurm_jobs") and not seen.named("slurm_rpcs_total"),
    )
    assert down.value("slurm_up") == 0
    assert not down.named("slurm_nodes")
    assert down.value("slurm_exporter_data_age_seconds", source="cluster") > 0
    assert down.value("slurm_exporter_read_failures_total", source="cluster") > 0

    cluster.shows(
        "the jail, which is nothing of it, is told of",
        lambda seen: bool(seen.named("slurmstack_jail_size_bytes")),
    )

    cluster.controller.start()
    up = cluster.shows(
        "it is up again, and its nodes are back",
        lambda seen: seen.value("slurm_up") == 1 and seen.value("slurm_nodes", state="idle") == 2,
    )
    assert machines(up) == MACHINES, "which slurmd tells only when it begins"
