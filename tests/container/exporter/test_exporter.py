"""Metrics show events of a real Slurm cluster at most one interval later."""

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
"""Names of machines that `start_worker` passes to slurmd."""
SECRETS = ("hunter2", "ada@example.org", "naïve", "名前")


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.controller.run("scancel --user=researcher")
    cluster.controller.run("scontrol update nodename=cpu-[0-1] state=resume || true")
    # Wait, because metrics would otherwise change during the next test, when the cancelled jobs
    # end.
    cluster.wait_for("no job runs or completes", lambda scrape: not in_work(scrape))


def jobs(scrape: Scrape, state: str) -> float:
    return scrape.value("slurm_jobs", state=state)


def in_work(scrape: Scrape) -> float:
    return jobs(scrape, "running") + jobs(scrape, "completing")


def places(scrape: Scrape) -> set[tuple[str, str]]:
    """Return the running jobs with their nodes, as pairs of a job and a node."""
    return {(labels["job_id"], labels["node"]) for labels in scrape.labels_of("slurm_job_node")}


def machines(scrape: Scrape) -> dict[str, str]:
    return {labels["node"]: labels["machine"] for labels in scrape.labels_of("slurm_node_info")}


def test_counts_running_pending_held_and_failed_jobs(cluster: Cluster) -> None:
    failed = jobs(cluster.now(), "failed")
    cluster.becomes(cluster.submit("--ntasks=3 --mem-per-cpu=100 --licenses=cad:2"), "RUNNING")
    cluster.becomes(cluster.submit("--ntasks=1 --mem=10", script="exit 3"), "FAILED")
    cluster.submit("--exclusive --array=0-9,15%2 --nodes=2 --mem=100")
    cluster.submit("--hold")

    def requested(scrape: Scrape) -> bool:
        return scrape.value("slurm_partition_cpus_requested", partition="main") == 11 * 2

    # slurmctld evaluates a new array only in its next scheduling cycle, seconds later.
    cluster.wait_for("slurmctld has evaluated the array", requested)
    scrape = cluster.now(intervals=2)
    assert jobs(scrape, "running") == 1
    assert jobs(scrape, "failed") == failed + 1
    assert scrape.value("slurm_licenses_used", license="cad") == 2
    assert jobs(scrape, "pending") == 12
    assert scrape.value("slurm_jobs_pending", reason="held") == 1
    assert scrape.value("slurm_user_jobs", user=USER, state="pending") == 12
    assert scrape.value("slurm_account_jobs", account="none", state="running") == 1
    assert scrape.value("slurm_partition_jobs", partition="main", state="running") == 1
    assert scrape.value("slurm_partition_cpus", partition="main") == 4
    assert scrape.value("slurm_partition_cpus_allocated", partition="main") == 3
    assert scrape.value("slurm_partition_memory_allocated_bytes", partition="main") == 300 << 20
    assert requested(scrape)
    assert 0 <= scrape.value("slurm_partition_pending_seconds", partition="main", share="1") < 60
    assert scrape.value("slurm_licenses", license="cad") == 10
    allocated = (
        scrape.value("slurm_node_memory_allocated_bytes", node=node) for node in ("cpu-0", "cpu-1")
    )
    assert sum(allocated) == 300 << 20
    assert scrape.labels_of("slurm_node_jobs_failed")


def job_counters(scrape: Scrape) -> dict[str, float]:
    """Return the job counters of slurmctld."""
    return {
        what: scrape.value(f"slurm_jobs_{what}_total")
        for what in ("submitted", "started", "completed", "canceled", "failed")
    }


def test_counters_show_changes_of_a_job_within_one_interval(cluster: Cluster) -> None:
    before = cluster.now()
    runs = cluster.submit("--ntasks=1 --mem=10")
    waits = cluster.submit("--ntasks=1 --hold")
    fails = cluster.submit("--ntasks=1 --mem=10", script="exit 3")
    cluster.becomes(runs, "RUNNING")
    cluster.becomes(fails, "FAILED")

    then = cluster.now()
    increase = {
        what: count - job_counters(before)[what] for what, count in job_counters(then).items()
    }
    # If a job's script fails, slurmctld counts the job as completed, not as failed.
    assert increase == {"submitted": 3, "started": 2, "completed": 1, "canceled": 0, "failed": 0}
    assert jobs(then, "failed") == jobs(before, "failed") + 1
    assert jobs(then, "cancelled") == jobs(before, "cancelled")

    cluster.controller.run(f"scancel {runs} {waits}")
    for job in (runs, waits):
        cluster.becomes(job, "CANCELLED")
    scrape = cluster.now()
    assert jobs(scrape, "cancelled") == jobs(then, "cancelled") + 2
    assert job_counters(scrape)["canceled"] == job_counters(then)["canceled"] + 2
    assert jobs(scrape, "running") == jobs(scrape, "pending") == 0


def test_held_job_is_not_reported_as_waiting(cluster: Cluster) -> None:
    cluster.becomes(cluster.submit("--exclusive --nodes=2 --mem=100"), "RUNNING")
    waits = cluster.submit("--ntasks=2")

    scrape = cluster.now()
    for owner in ({"partition": "main"}, {"account": "none"}, {"user": USER}):
        (by,) = owner
        for what in ("pending", "waited"):
            assert 0 <= scrape.value(f"slurm_{by}_{what}_seconds", share="1", **owner) < 60
    assert scrape.value("slurm_partition_cpus_requested", partition="main") == 2
    assert scrape.value("slurm_user_cpus_requested", user=USER) == 2
    assert scrape.labels_of("slurm_partition_pending_seconds")

    cluster.controller.run(f"scontrol hold {waits}")
    scrape = cluster.now()
    assert jobs(scrape, "pending") == 1
    assert scrape.value("slurm_partition_cpus_requested", partition="main") == 0
    assert scrape.value("slurm_user_cpus_requested", user=USER) == 0
    assert not scrape.labels_of("slurm_partition_pending_seconds")


def test_failed_node_is_reported_down_one_interval_later(cluster: Cluster) -> None:
    worker = cluster.workers["cpu-1"]

    def state() -> str:
        return cluster.controller.run("sinfo --noheader --nodes=cpu-1 --format=%T").strip()

    def becomes(word: str) -> None:
        # Wait long, because slurmctld pings a silent node three times before it sets the node down.
        deadline = time.monotonic() + 120
        while state().rstrip("*") != word:
            assert time.monotonic() < deadline, f"cpu-1 is {state()}; expected {word}"
            time.sleep(0.2)

    kill_slurmd(worker)
    try:
        becomes("down")
        scrape = cluster.now()
    finally:
        start_slurmd(worker)
    assert scrape.value("slurm_nodes", state="down") == 1
    assert scrape.value("slurm_nodes", state="idle") == 1
    assert scrape.value("slurm_node_state", node="cpu-1", state="down") == 1
    assert scrape.value("slurm_partition_nodes", partition="main", state="down") == 1

    becomes("idle")
    scrape = cluster.now()
    assert scrape.value("slurm_nodes", state="idle") == 2
    assert scrape.value("slurm_node_state", node="cpu-1", state="idle") == 1


@contextmanager
def private(cluster: Cluster, *hidden: str) -> Iterator[None]:
    """Set PrivateData to these categories during the `with` block."""

    def becomes(hidden: Sequence[str]) -> None:
        config = alone(lambda values: values.update(slurm={**SLURM, "private_data": hidden}))
        put(cluster.controller.container, etc(config))
        cluster.controller.run("scontrol reconfigure")

    becomes(hidden)
    try:
        yield
    finally:
        becomes([])


def test_exporter_that_runs_as_slurm_user_reads_private_data(cluster: Cluster) -> None:
    cluster.submit("--ntasks=1 --mem=10")
    cluster.wait_for("the job runs", lambda scrape: jobs(scrape, "running") == 1)

    with private(cluster, "jobs", "nodes", "partitions", "reservations"):
        private_scrape = cluster.scrape_as(c.SLURM_ID)
        with pytest.raises(AssertionError, match="permission denied"):
            cluster.scrape_as(c.EXPORTER_ID)

    assert jobs(private_scrape, "running") == 1
    assert len(private_scrape.labels_of("slurm_node_cpus")) == 2


def test_running_job_is_shown_on_its_nodes(cluster: Cluster) -> None:
    wide = cluster.submit("--nodes=2 --ntasks=2 --mem=100")
    array = cluster.submit("--array=7 --ntasks=1 --mem=100")
    cluster.submit("--hold")

    scrape = cluster.wait_for("both jobs run", lambda scrape: jobs(scrape, "running") == 2)
    assert {(job, node) for job, node in places(scrape) if job == wide} == {
        (wide, "cpu-0"),
        (wide, "cpu-1"),
    }
    assert sorted(job for job, _ in places(scrape)) == sorted([wide, wide, f"{array}_7"])
    for labels in scrape.labels_of("slurm_job_node"):
        assert labels["partition"] == "main"
        assert labels["user"] == USER
        assert labels["account"] == "none"

    cluster.controller.run("scancel --user=researcher")
    cluster.wait_for("no job is shown", lambda scrape: not places(scrape))


def test_node_info_shows_the_machine(cluster: Cluster) -> None:
    assert machines(cluster.scrape()) == MACHINES
    assert "InstanceId=machine-of-cpu-0" in cluster.controller.run("scontrol show node cpu-0")


def test_reports_the_usage_of_the_jail(cluster: Cluster) -> None:
    scrape = cluster.scrape()
    size = scrape.value("slurmstack_jail_size_bytes", volume="jail")
    assert 0 < scrape.value("slurmstack_jail_available_bytes", volume="jail") < size
    assert scrape.value("slurm_exporter_read_up", source="jail") == 1


def test_reports_the_usage_of_a_jail_volume_by_name(cluster: Cluster) -> None:
    def available(scrape: Scrape, volume: str) -> float:
        return scrape.value("slurmstack_jail_available_bytes", volume=volume)

    before = cluster.scrape()
    blocks, size = cluster.exporter.run("stat -f -c '%b %S' /dev/shm").split()
    assert before.value("slurmstack_jail_size_bytes", volume="shm") == int(blocks) * int(size)
    cluster.exporter.run(f"head -c {8 << 20} /dev/zero >/dev/shm/data")
    try:
        cluster.wait_for(
            "less space is available",
            lambda scrape: available(before, "shm") - available(scrape, "shm") >= 8 << 20,
        )
    finally:
        cluster.exporter.run("rm /dev/shm/data")
    cluster.wait_for(
        "the space is available again",
        lambda scrape: available(scrape, "shm") == available(before, "shm"),
    )
    assert {labels["volume"] for labels in before.labels_of("slurmstack_jail_size_bytes")} == {
        "jail",
        "shm",
    }


def test_metrics_show_the_duration_but_not_the_reason_of_drains(cluster: Cluster) -> None:
    cluster.controller.run(f"scontrol update nodename=cpu-0 state=drain reason={ODD}")
    cluster.controller.run(
        "scontrol update nodename=cpu-1 state=drain reason='slurmstack:check:gpu-ecc: 3 errors'"
    )

    scrape = cluster.now()
    assert scrape.value("slurm_nodes", state="drained") == 2
    assert scrape.value("slurm_nodes_drained", cause="foreign") == 1
    assert scrape.value("slurm_nodes_drained", cause="gpu-ecc") == 1
    assert scrape.value("slurm_node_state", node="cpu-0", state="drained") == 1
    assert 0 <= scrape.value("slurm_node_drained_seconds", node="cpu-0", cause="foreign") < 60
    assert not [secret for secret in SECRETS if secret in scrape.text]

    cluster.controller.run("scontrol update nodename=cpu-[0-1] state=resume")
    scrape = cluster.now()
    assert scrape.value("slurm_nodes", state="idle") == 2
    assert not scrape.labels_of("slurm_node_drained_seconds")


def test_unusual_job_texts_do_not_appear_in_metrics(cluster: Cluster) -> None:
    cluster.submit(
        f"--job-name={ODD} --comment=hunter2 --mail-user=ada@example.org",
        "--account=$'ada@example.org\\njob\\tRUNNING'",
    )
    cluster.submit(f"--account={ODD}", f"--job-name={ODD} --wckey=hunter2")

    scrape = cluster.wait_for("both jobs run", lambda scrape: jobs(scrape, "running") == 2)
    accounts = {labels["account"] for labels in scrape.labels_of("slurm_account_jobs")}
    assert "ada" in accounts
    assert "hunter2" not in scrape.text
    assert "example.org" not in scrape.text


def test_promtool_accepts_the_metrics(cluster: Cluster, start_container: Start) -> None:
    cluster.submit("--exclusive --nodes=2 --mem=100")
    cluster.submit("--exclusive --nodes=2 --mem=100")
    scrape = cluster.now()
    assert scrape.labels_of("slurm_partition_pending_seconds")
    promtool = start_container("monitoring")
    put(promtool, {"/tmp/metrics": scrape.text})

    code, output = promtool.exec_run(["bash", "-c", "promtool check metrics </tmp/metrics"])
    assert code == 0, output


def test_only_the_top_accounts_have_their_own_series(cluster: Cluster) -> None:
    cluster.becomes(cluster.submit("--exclusive --nodes=2 --mem=100"), "RUNNING")
    for number in range(4):
        cluster.submit(f"--account=lab{number} --ntasks={number + 1} --mem-per-cpu=10")

    scrape = cluster.now()
    assert jobs(scrape, "pending") == 4
    requested = {
        labels["account"]: scrape.value("slurm_account_cpus_requested", **labels)
        for labels in scrape.labels_of("slurm_account_cpus_requested")
    }
    assert requested == {"none": 0, "lab3": 4, "other": 3 + 2 + 1}


def test_reports_reservations_and_scheduler_statistics(cluster: Cluster) -> None:
    cluster.controller.run(
        "scontrol create reservation reservationname=course users=researcher nodes=cpu-0 "
        "starttime=now+1days duration=60"
    )
    try:
        scrape = cluster.now(intervals=2)
    finally:
        cluster.controller.run("scontrol delete reservationname=course")
    assert scrape.value("slurm_reservation_nodes", reservation="course") == 1
    start = scrape.value("slurm_reservation_start_timestamp_seconds", reservation="course")
    assert (
        scrape.value("slurm_reservation_end_timestamp_seconds", reservation="course") - start
        == 3600
    )
    assert scrape.value("slurm_scheduler_cycles_total") > 0
    assert scrape.value("slurm_server_threads") > 0
    assert scrape.value("slurm_rpcs_total", type="REQUEST_NODE_INFO") > 0
    assert not cluster.now(intervals=2).labels_of("slurm_reservation_nodes")


def test_reservation_name_is_shown_without_its_email_domain(
    cluster: Cluster,
) -> None:
    created = cluster.controller.run(
        "scontrol create reservation accounts=ada@example.org nodes=cpu-1 starttime=now+1days "
        "duration=60"
    )
    (number,) = re.findall(r"Reservation created: ada@example\.org_(\d+)", created)
    try:
        scrape = cluster.now(intervals=2)
    finally:
        cluster.controller.run(f"scontrol delete reservationname=ada@example.org_{number}")
    assert scrape.labels_of("slurm_reservation_nodes") == [{"reservation": f"ada_{number}"}]
    assert "example.org" not in scrape.text


def test_reports_rpcs_of_the_configured_number_of_users(
    cluster: Cluster,
) -> None:
    for _ in range(3):
        cluster.submit("--hold")

    assert len(cluster.now().labels_of("slurm_user_rpcs_total")) == int(ENVIRONMENT["TOP"])
    larger_scrape = cluster.scrape_as(c.EXPORTER_ID, TOP="10")
    assert larger_scrape.value("slurm_user_rpcs_total", user=USER) >= 3
    assert larger_scrape.value("slurm_user_rpc_duration_seconds_total", user=USER) > 0
    # slurmd also sends RPCs, as root.
    assert larger_scrape.value("slurm_user_rpcs_total", user="root") > 0


def test_exporter_sends_at_most_five_requests_per_interval(cluster: Cluster) -> None:
    ours = re.compile(r"REQUEST_(JOB|NODE|PARTITION|LICENSE|RESERVATION|STATS)_INFO.*")

    def counts(scrape: Scrape) -> tuple[float, dict[str, float]]:
        calls = {
            labels["type"]: scrape.value("slurm_rpcs_total", **labels)
            for labels in scrape.labels_of("slurm_rpcs_total")
            if ours.fullmatch(labels["type"])
        }
        return scrape.value("slurm_exporter_reads_total", source="scheduler"), calls

    def after(reads: float) -> tuple[float, dict[str, float]]:
        return counts(
            cluster.wait_for(
                "the exporter has read Slurm again", lambda scrape: counts(scrape)[0] >= reads
            )
        )

    # Between the two scrapes, only the exporter sends such requests.
    first_reads, first = after(counts(cluster.scrape())[0] + 1)
    last_reads, last = after(first_reads + 6)
    increase = sum(last.values()) - sum(first.values())
    assert 4 * (last_reads - first_reads) <= increase <= 5 * (last_reads - first_reads)


def test_unavailable_slurmctld_is_reported_and_its_metrics_disappear(cluster: Cluster) -> None:
    cluster.wait_for("slurmctld is up", lambda scrape: scrape.value("slurm_up") == 1)
    cluster.controller.stop()
    down = cluster.wait_for(
        "metrics of slurmctld have disappeared",
        lambda scrape: (
            not scrape.labels_of("slurm_jobs") and not scrape.labels_of("slurm_rpcs_total")
        ),
    )
    assert down.value("slurm_up") == 0
    assert not down.labels_of("slurm_nodes")
    assert down.value("slurm_exporter_data_age_seconds", source="cluster") > 0
    assert down.value("slurm_exporter_read_failures_total", source="cluster") > 0

    cluster.wait_for(
        "metrics of the jail, which do not depend on slurmctld, are present",
        lambda scrape: bool(scrape.labels_of("slurmstack_jail_size_bytes")),
    )

    cluster.controller.start()
    up = cluster.wait_for(
        "slurmctld is up, and its nodes are idle again",
        lambda scrape: (
            scrape.value("slurm_up") == 1 and scrape.value("slurm_nodes", state="idle") == 2
        ),
    )
    assert machines(up) == MACHINES, "slurmd sends the machine name only at its start"
