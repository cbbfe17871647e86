"""What the daemons say gets to a collector, all of it, and nothing of what jobs print."""

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from components import conventions as c
from tests.cluster.health.faults import away_collector
from tests.cluster.health.receiving import COLLECTOR_NAMESPACE
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

SOON = 90
"""Seconds in which a line is there."""


@dataclass(frozen=True)
class Told:
    """A line as it came."""

    source: dict[str, str]
    """Attributes of who wrote it."""
    text: str
    severity: str
    job: str


@dataclass(frozen=True)
class Collector:
    """Who takes the lines."""

    cluster: Cluster

    def told(self, container: str) -> list[Told]:
        """The lines of all containers of a name that have come, in their order."""
        there = f"--namespace={COLLECTOR_NAMESPACE}"
        printed = self.cluster.kubectl("logs", there, "receiver").split("\n")
        found = (_line(*json.loads(line)) for line in printed if line)
        return [one for one in found if one.source["k8s.container.name"] == container]

    def has(self, container: str, job: int, *words: str) -> Told:
        """Wait for a line about a job with one of these words, and return the first one."""

        def of_job() -> list[Told]:
            return [one for one in self.told(container) if one.job == str(job)]

        def first() -> Told | None:
            return next((one for one in of_job() if any(w in one.text for w in words)), None)

        try:
            found = eventually(f"{container} says {words} of job {job}", first, SOON)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{of_job()}") from None
        assert found
        return found

    def has_all(self, container: str, said: list[str]) -> None:
        """Waits until all of these lines have come."""
        eventually(
            f"all that {container} said has come",
            lambda: set(said) <= {one.text for one in self.told(container)},
            SOON,
        )


def _line(source: list[dict[str, Any]], record: dict[str, Any]) -> Told:
    job = _values(record.get("attributes", [])).get("slurm.job", "")
    return Told(_values(source), record["body"]["stringValue"], record["severityText"], job)


def _values(attributes: list[dict[str, Any]]) -> dict[str, str]:
    return {one["key"]: one["value"]["stringValue"] for one in attributes}


@pytest.fixture
def collector(cluster: Cluster) -> Collector:
    return Collector(cluster)


def said_by_slurmctld(cluster: Cluster) -> list[str]:
    """What it has said in the last minute, as the kubelet has it."""
    said = cluster.kubectl("logs", cluster.controller(), "-c", "slurmctld", "--since=60s")
    return [line for line in said.splitlines() if line]


def runs_a_job(cluster: Cluster, folder: str, prints: str = "") -> int:
    job = cluster.submit(folder, f"#!/bin/sh\necho {prints}; echo {prints} >&2")
    cluster.wait_for_job(job)
    return job


def test_a_jobs_life_is_told_by_both_daemons_and_nothing_of_its_output(
    cluster: Cluster, collector: Collector, folder: str
) -> None:
    secret = uuid.uuid4().hex
    job = runs_a_job(cluster, folder, prints=secret)
    # The main scheduler and backfill have different words for it.
    begins = collector.has("slurmctld", job, "Allocate", "Started")
    ends = collector.has("slurmctld", job, "done")
    on_node = collector.has("slurmd", job, "Launching batch job")

    assert begins.source["service.name"] == c.CONTROLLER
    assert begins.source["slurm.cluster"] == cluster.stack
    assert begins.source["k8s.namespace.name"] == "slurm"
    assert {begins.severity, ends.severity, on_node.severity} == {"INFO"}
    assert on_node.source["service.name"] == c.WORKER
    node = on_node.source["k8s.pod.name"]
    assert re.search(rf"(NodeList=| on ){node}( |$)", begins.text)
    machine = cluster.kubectl("get", "pod", node, "-o", "jsonpath={.spec.nodeName}")
    assert on_node.source["k8s.node.name"] == machine
    assert secret in cluster.run(f"cat {folder}/slurm-{job}.out"), "it is in the jail"
    there = f"--namespace={COLLECTOR_NAMESPACE}"
    assert secret not in cluster.kubectl("logs", there, "receiver")


def test_a_collector_that_was_away_has_all_of_it_afterwards(
    cluster: Cluster, collector: Collector, folder: str
) -> None:
    with away_collector(cluster):
        job = runs_a_job(cluster, folder)
        said = said_by_slurmctld(cluster)
        assert any(f"JobId={job} " in line for line in said)
        assert not [one for one in collector.told("slurmctld") if one.job == str(job)]
    collector.has("slurmctld", job, "done")
    collector.has_all("slurmctld", said)


def test_who_sends_may_be_replaced(cluster: Cluster, collector: Collector, folder: str) -> None:
    (before,) = cluster.pods(c.LOGS)
    cluster.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    job = runs_a_job(cluster, folder)
    said = said_by_slurmctld(cluster)
    collector.has("slurmctld", job, "done")
    collector.has("slurmd", job, "Launching batch job")
    collector.has_all("slurmctld", said)
