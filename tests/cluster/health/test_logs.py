"""The log collector gets all log lines of the daemons, but no output of jobs."""

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
"""Time limit in seconds for the arrival of a log line at the collector."""


@dataclass(frozen=True)
class Line:
    """A log line at the receiver."""

    source: dict[str, str]
    """Attributes of the daemon that wrote the line."""
    text: str
    severity: str
    job: str


@dataclass(frozen=True)
class Collector:
    """The program that collects the log lines: the pod `receiver`."""

    cluster: Cluster

    def received(self, container: str) -> list[Line]:
        """Return the received lines of all containers with this name, in order."""
        there = f"--namespace={COLLECTOR_NAMESPACE}"
        printed = self.cluster.kubectl("logs", there, "receiver").split("\n")
        lines = (_line(*json.loads(line)) for line in printed if line)
        return [one for one in lines if one.source["k8s.container.name"] == container]

    def has(self, container: str, job: int, *words: str) -> Line:
        """Wait until a line about the job contains one of the words, and return the first one."""

        def lines_of_job() -> list[Line]:
            return [one for one in self.received(container) if one.job == str(job)]

        def first() -> Line | None:
            return next((one for one in lines_of_job() if any(w in one.text for w in words)), None)

        try:
            line = eventually(
                f"a log line of {container} about job {job} has one of {words}", first, SOON
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{lines_of_job()}") from None
        assert line
        return line

    def has_all(self, container: str, logged: list[str]) -> None:
        """Wait until the receiver has all of these lines."""
        eventually(
            f"all lines of {container} have arrived",
            lambda: set(logged) <= {one.text for one in self.received(container)},
            SOON,
        )


def _line(source: list[dict[str, Any]], record: dict[str, Any]) -> Line:
    job = _values(record.get("attributes", [])).get("slurm.job", "")
    return Line(_values(source), record["body"]["stringValue"], record["severityText"], job)


def _values(attributes: list[dict[str, Any]]) -> dict[str, str]:
    return {one["key"]: one["value"]["stringValue"] for one in attributes}


@pytest.fixture
def collector(cluster: Cluster) -> Collector:
    return Collector(cluster)


def slurmctld_lines(cluster: Cluster) -> list[str]:
    """Return slurmctld's log of the last minute, from the kubelet."""
    log = cluster.kubectl("logs", cluster.controller(), "-c", "slurmctld", "--since=60s")
    return [line for line in log.splitlines() if line]


def run_a_job(cluster: Cluster, folder: str, prints: str = "") -> int:
    job = cluster.submit(folder, f"#!/bin/sh\necho {prints}; echo {prints} >&2")
    cluster.wait_for_job(job)
    return job


def test_collector_gets_lines_about_a_job_but_not_its_output(
    cluster: Cluster, collector: Collector, folder: str
) -> None:
    secret = uuid.uuid4().hex
    job = run_a_job(cluster, folder, prints=secret)
    # Accept two words, because slurmctld's main scheduler and its backfill scheduler log the start
    # of a job differently.
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
    assert secret in cluster.run(f"cat {folder}/slurm-{job}.out"), "the output is in the jail"
    there = f"--namespace={COLLECTOR_NAMESPACE}"
    assert secret not in cluster.kubectl("logs", there, "receiver")


def test_collector_gets_all_lines_after_an_outage(
    cluster: Cluster, collector: Collector, folder: str
) -> None:
    with away_collector(cluster):
        job = run_a_job(cluster, folder)
        logged = slurmctld_lines(cluster)
        assert any(f"JobId={job} " in line for line in logged)
        assert not [one for one in collector.received("slurmctld") if one.job == str(job)]
    collector.has("slurmctld", job, "done")
    collector.has_all("slurmctld", logged)


def test_replacing_the_log_sender_loses_no_line(
    cluster: Cluster, collector: Collector, folder: str
) -> None:
    (before,) = cluster.pods(c.LOGS)
    cluster.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    job = run_a_job(cluster, folder)
    logged = slurmctld_lines(cluster)
    collector.has("slurmctld", job, "done")
    collector.has("slurmd", job, "Launching batch job")
    collector.has_all("slurmctld", logged)
