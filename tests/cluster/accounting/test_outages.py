"""If slurmdbd or its database fails under load, jobs continue and no record is lost."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.cluster import Cluster, is_ready
from tests.support.waiting import eventually

AWAY = 30
"""Length of an outage in seconds. Outages of two minutes lost no record either."""
JOB = "echo $SLURM_JOB_ID >>ended"


@dataclass(frozen=True)
class Load:
    """A stream of short jobs; each appends its id to a file."""

    cluster: Cluster
    folder: str

    def submit(self, count: int) -> None:
        self.cluster.run(
            f"cd {self.folder} && for i in $(seq {count}); do"
            f" sbatch --quiet --output=/dev/null --wrap '{JOB}'; done"
        )

    def ended(self) -> set[int]:
        output = self.cluster.run(f"cat {self.folder}/ended 2>/dev/null || true")
        return {int(line) for line in output.splitlines()}

    def on_record(self) -> set[int]:
        """Return the jobs that sacct reports as completed."""
        output = self.cluster.run("sacct -X -n -P --starttime=today --format=JobID,State")
        lines = (line.split("|") for line in output.splitlines())
        return {int(job) for job, state in lines if state == "COMPLETED"}

    def go_on(self, seconds: float) -> None:
        """Submit five jobs again and again for `seconds`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.submit(5)
            # Pause, because the nodes have only four CPUs: more jobs would only wait in the queue
            # and load the machine.
            time.sleep(0.5)


@pytest.fixture
def load(cluster: Cluster, folder: str) -> Load:
    return Load(cluster, folder)


def ready(cluster: Cluster, component: str) -> bool:
    return any(map(is_ready, cluster.pods(component)))


@pytest.fixture(params=["deployment/accounting", "statefulset/database"])
def outage(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[[bool], None]]:
    """Return a function that stops slurmdbd or MariaDB, or starts it again."""
    component = request.param.partition("/")[2]

    def switch(there: bool) -> None:
        cluster.kubectl("scale", request.param, f"--replicas={int(there)}")
        if there:
            # Wait for the database too, because slurmdbd is not ready without it.
            both = ("database", "accounting")
            eventually(
                "slurmdbd and its database are ready",
                lambda: all(ready(cluster, c) for c in both),
                timeout=120,
            )
        else:
            eventually(f"{component} is stopped", lambda: not cluster.pods(component), timeout=150)

    yield switch
    switch(True)


def test_jobs_continue_and_no_record_is_lost_in_an_outage(
    load: Load, outage: Callable[[bool], None]
) -> None:
    load.submit(5)
    outage(False)

    before = load.ended()
    load.go_on(AWAY)
    during = load.ended() - before

    assert len(during) > 20, "jobs start and end during the outage"
    check_that_sacct_fails_soon(load.cluster)
    # Wait until the readiness probe has failed. Otherwise, Kubernetes could mark slurmdbd as not
    # ready only after the outage, when slurmdbd works again.
    eventually("slurmdbd is not ready", lambda: not ready(load.cluster, "accounting"), 120)
    outage(True)
    load.submit(5)
    eventually(
        "all jobs have ended",
        lambda: load.cluster.run("squeue --me --noheader --states=PD,R,CG") == "",
        timeout=120,
    )
    ended = load.ended()
    eventually("sacct shows each job as completed", lambda: ended <= load.on_record(), 120)


def check_that_sacct_fails_soon(cluster: Cluster) -> None:
    """Accounting commands fail quickly, with a message that names the cause."""
    asked = cluster.ssh("timeout 60 sacct", check=False)
    assert asked.returncode not in (0, 124), asked
    assert "slurmdbd" in asked.stderr or "database" in asked.stderr.lower()
