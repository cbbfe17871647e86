"""The next deploy completes a deploy that was killed at a random moment."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from components.conventions import PROJECT
from engine.backend import Backend
from engine.providers.kubernetes.manifests import kind_of
from local.paths import ROOT
from tests.support import kube
from tests.support.chance import shuffled
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.waiting import eventually

Values = dict[str, Any]
LATEST = 12
"""Time of the latest kill, in seconds after the start of a deploy. A deploy takes less time, so the
random times of the kills cover all of its steps."""


def resize(values: Values, number: int) -> None:
    values["nodesets"][0]["replicas"] = 2 + number % 2


def configure(values: Values, number: int) -> None:
    """Change slurm.conf. This replaces the Jobs that check slurm.conf and reload slurmctld."""
    values["partitions"] = [{"name": "main", "nodesets": ["cpu"], "max_time": f"1:{number:02}:00"}]


def add_a_user(values: Values, number: int) -> None:
    """Add a user, which replaces the Job for homes."""
    values["users"].append({"name": f"user{number}", "uid": 3000 + number})


def change_pods(values: Values, number: int) -> None:
    """Change the pod templates of the login nodes, as a new image would."""
    values["login"] = {**values.get("login", {}), "drain_grace": 40 + number}


def add_or_remove_a_nodeset(values: Values, number: int) -> None:
    values["nodesets"] = values["nodesets"][:1]
    if number % 2:
        size = {"replicas": 1, "cpus": 1, "cpu_request": 0.1, "memory": "256MiB"}
        values["nodesets"].append({"name": "extra", **size, "drain_grace": 20})


EDITS: tuple[Callable[[Values, int], None], ...] = (
    resize,
    configure,
    add_a_user,
    change_pods,
    add_or_remove_a_nodeset,
)


@pytest.fixture
def running_job(cluster: Cluster, folder: str) -> Iterator[int]:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 3600", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")
    yield job
    cluster.run(f"scancel {job}")
    cluster.deploy("up")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


@pytest.fixture
def kept(cluster: Cluster, folder: str, running_job: int) -> Callable[[], dict[str, str]]:
    """A function that returns what no deploy may lose: a file, a job's record, the volumes."""
    cluster.run(f"echo precious >{folder}/kept")

    def read() -> dict[str, str]:
        job = f"sacct --noheader --allocations --parsable2 --jobs={running_job}"
        return {
            "file": cluster.run(f"cat {folder}/kept"),
            "job": cluster.run(f"{job} --format=JobID,State,Start,NodeList"),
            **{
                claim["metadata"]["name"]: claim["metadata"]["uid"]
                for claim in cluster.objects("persistentvolumeclaims")
            },
        }

    eventually("sacct shows the job", lambda: "|RUNNING|" in read()["job"])
    return read


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_next_deploy_completes_a_killed_deploy(
    cluster: Cluster, running_job: int, kept: Callable[[], dict[str, str]], rounds: int
) -> None:
    before = kept()
    chosen, kinds = shuffled(EDITS, rounds)
    done: list[tuple[Callable[[Values, int], None], int]] = []

    def edit(values: Values) -> None:
        for kind, number in done:
            kind(values, number)

    for number, kind in enumerate(kinds):
        done.append((kind, number))
        with cluster.edited(edit):
            kill_a_deploy(cluster, chosen.uniform(1, LATEST))
            cluster.deploy("up")
            if number == rounds - 1:
                cluster.deploy("preview", "--expect-no-changes")
        expect_no_duplicates(cluster)
        assert cluster.job_state(running_job) == "RUNNING", kind.__name__
    expect_the_objects_of_the_state(cluster)
    assert kept() == before
    eventually("both nodes are in service", lambda: {"cpu-0", "cpu-1"} <= set(cluster.nodes()))


def kill_a_deploy(cluster: Cluster, seconds: float) -> None:
    process = cluster.start_deploy("up")
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def expect_no_duplicates(cluster: Cluster) -> None:
    """Expect each Kubernetes Job once.

    The names of most Jobs end with a generated part, so a killed deploy and the next deploy could
    both create the same Job under different names.
    """
    owned = Counter(
        one["metadata"]["name"].rsplit("-", 1)[0]
        for one in cluster.objects("jobs")
        if "ownerReferences" not in one["metadata"]
    )
    assert set(owned.values()) == {1}, owned


def expect_the_objects_of_the_state(cluster: Cluster) -> None:
    """Expect the same objects in the cluster and in the state, and no unfinished operation.

    An object that is only in the cluster is a leftover of a killed deploy. This does not apply to
    objects that Kubernetes creates itself, such as ReplicaSets and the Jobs of a CronJob: no engine
    has applied them.
    """
    checkpoint = Backend(ROOT / ".local/state", PROJECT, cluster.stack).read()
    assert checkpoint is not None
    deployment = checkpoint.deployment
    assert not deployment.get("pending_operations")
    resources = deployment["resources"]
    assert not [one["urn"] for one in resources if one.get("delete")], (
        "no replaced object is left to delete"
    )
    twice = [urn for urn, count in Counter(one["urn"] for one in resources).items() if count > 1]
    assert not twice

    stored = Counter(
        (kind_of(one["type"], {}), one["id"].partition("/")[2])
        for one in resources
        if one["type"].startswith("kubernetes:") and one.get("id", "").startswith(f"{NAMESPACE}/")
    )
    assert set(stored.values()) == {1}, stored
    found = kube.applied(cluster.kubeconfig, {kind for kind, _ in stored}, NAMESPACE)
    assert not {one for one, is_applied in found.items() if is_applied} - set(stored)
    assert not set(stored) - set(found)
