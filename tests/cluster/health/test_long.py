"""Long checks: Slurm jobs that CronJobs start at night and that yield to users' jobs."""

import json
from typing import Any

from components import conventions as c
from tests.cluster.health.node import Node, runs_now, scraped
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def history(cluster: Cluster, check: str) -> list[dict[str, Any]]:
    """Return all measurements, oldest first."""
    command = ("exec", "deploy/longchecks", "--", "python3", "-m", "agents.longchecks")
    lines = cluster.kubectl(*command, "history", check, "--json").splitlines()
    return [json.loads(line) for line in lines]


def test_long_check_waits_until_nodes_are_idle(node: Node, folder: str) -> None:
    cluster = node.cluster
    job = cluster.submit(folder, "#!/bin/sh\nsleep 20", "--nodelist=cpu-0", "--exclusive")
    cluster.wait_for_job(job, "RUNNING")

    assert "Complete" in runs_now(cluster, "network")

    assert cluster.job_state(job) == "COMPLETED"
    (pair, *_) = history(cluster, "network")
    assert sorted(pair["nodes"]) == ["cpu-0", "cpu-1"]
    assert pair["value"] > 0
    assert pair["verdict"] == "unjudged"


def test_node_below_the_threshold_is_drained(node: Node) -> None:
    cluster = node.cluster
    names = ("cpu-0", "cpu-1")

    # No machine reaches the threshold.
    assert "Failed" in runs_now(cluster, "cpu-memory")

    for name in names:
        Node(cluster, name).is_drained_for("longcheck:cpu-memory")
    assert {measurement["verdict"] for measurement in history(cluster, "cpu-memory")} == {"bad"}
    labels = f'{{check="cpu-memory",node="{node.name}"}}'
    metrics = eventually("long checks show metrics", lambda: scraped(cluster, c.LONG_CHECKS))
    assert metrics[f"slurmstack_longcheck_good{labels}"] == 0
    assert 0 < metrics[f"slurmstack_longcheck_value{labels}"] < 1_000_000_000
    assert metrics[f"slurmstack_longcheck_minimum{labels}"] == 1_000_000_000
    # The quick checks pass, but must not lift the drain of a long check.
    assert node.looks().failed == ()
    node.looks()
    assert node.reason.startswith("slurmstack:longcheck:cpu-memory:")
    for name in names:
        cluster.operate("scontrol", "update", f"nodename={name}", "state=resume")
        Node(cluster, name).is_back()
