"""Nodes on demand: how long a job waits for its node, and how long the pod takes to start."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bench.figures import Figures, say
from tests.support.cluster import Cluster, is_ready
from tests.support.nodesets import SMALL, deployed
from tests.support.waiting import becomes

ROUNDS = 5
LIMIT = 120
"""Seconds within which a pod must start."""
NODESET = {**SMALL, "name": "cloud", "on_demand": {"idle": 15}}
PARTITIONS = [
    {"name": "main", "nodesets": ["cpu"], "default": True},
    {"name": "cloud", "nodesets": ["cloud"]},
]


def measure(figures: Figures, cluster: Cluster) -> None:
    say("waking a node for a job")
    with deployed(cluster, nodesets=[NODESET], partitions=PARTITIONS):
        took = [_wake(cluster) for _ in range(ROUNDS)]
    jobs, pods = zip(*took, strict=True)
    figures.add("node on demand, submission of a job to its start", statistics.median(jobs))
    figures.add("node on demand, creation of its pod to Ready", statistics.median(pods))
    ratio = statistics.median(job / pod for job, pod in took)
    figures.add("node on demand, ratio of the two", ratio, at_most=1.3)


def _wake(cluster: Cluster) -> tuple[float, float]:
    """Return the seconds until the job starts, and those until the pod is ready."""
    state = "sinfo --noheader --partition=cloud --format=%t"
    becomes("the node", lambda: cluster.run(state), "idle~", LIMIT)
    with ThreadPoolExecutor(1) as pool:
        pod = pool.submit(_start_of_pod, cluster)
        answer = cluster.ssh("date +%s.%N; srun --partition=cloud date +%s.%N", timeout=LIMIT)
        submitted, started = map(float, answer.stdout.split())
        return started - submitted, pod.result()


def _start_of_pod(cluster: Cluster) -> float:
    def pods() -> list[dict[str, Any]]:
        return cluster.objects("pods", "slurmstack.dev/on-demand")

    created = _moment(lambda: bool(pods()))
    return _moment(lambda: any(map(is_ready, pods()))) - created


def _moment(is_reached: Callable[[], bool]) -> float:
    """Wait, and return the time. `eventually` waits too long between two probes."""
    end = time.monotonic() + LIMIT
    while not is_reached():
        assert time.monotonic() < end, f"no start of a pod within {LIMIT} s"
        time.sleep(0.02)
    return time.monotonic()
