"""Nodes on demand: how long a job waits for its node, and how long the pod takes to start."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Start:
    """Times of one start of a sleeping node, in seconds after the submission of its job."""

    created: float
    """Time when the node's pod exists."""
    ready: float
    """Time when the pod is ready."""
    in_service: float
    """Time when the node is in service, so that slurmctld can start the job."""
    started: float
    """Time when the job starts."""

    @property
    def pod(self) -> float:
        return self.ready - self.created


def measure(figures: Figures, cluster: Cluster) -> None:
    say("waking a node for a job")
    with deployed(cluster, nodesets=[NODESET], partitions=PARTITIONS):
        starts = [_wake(cluster) for _ in range(ROUNDS)]

    def add(name: str, of: Callable[[Start], float], **wanted: float) -> None:
        figures.add(f"node on demand, {name}", statistics.median(map(of, starts)), **wanted)

    add("submission of a job to the creation of its pod", lambda start: start.created)
    add("creation of the pod to Ready", lambda start: start.pod)
    add("submission of a job to a node in service", lambda start: start.in_service)
    add("submission of a job to its start", lambda start: start.started)
    add(
        "ratio, time to a node in service/time to a ready pod",
        lambda start: start.in_service / start.pod,
    )
    add(
        "ratio, time to the start of the job/time to a ready pod",
        lambda start: start.started / start.pod,
        at_most=1.3,
    )


def _wake(cluster: Cluster) -> Start:
    becomes("the state of the node", lambda: _state(cluster), "idle~", LIMIT)
    with ThreadPoolExecutor(2) as pool:
        pod = pool.submit(_of_pod, cluster)
        node = pool.submit(_moment, lambda: _state(cluster) in ("alloc", "mix"))
        command = "date +%s.%N; srun --partition=cloud date +%s.%N"
        answer = cluster.ssh(command, timeout=LIMIT, alone=True)
        submitted, started = map(float, answer.stdout.split())
        moments = (*pod.result(), node.result(), started)
    created, ready, in_service, started = (moment - submitted for moment in moments)
    return Start(created, ready, in_service, started)


def _state(cluster: Cluster) -> str:
    return cluster.run("sinfo --noheader --partition=cloud --format=%t")


def _of_pod(cluster: Cluster) -> tuple[float, float]:
    """Return the times at which the pod exists and at which the pod is ready."""

    def pods() -> list[dict[str, Any]]:
        return cluster.objects("pods", "slurmstack.dev/on-demand")

    return _moment(lambda: bool(pods())), _moment(lambda: any(map(is_ready, pods())))


def _moment(is_reached: Callable[[], bool]) -> float:
    """Wait until the condition holds, and return the time.

    `eventually` would wait too long between two probes.
    """
    end = time.monotonic() + LIMIT
    while not is_reached():
        assert time.monotonic() < end, f"the node on demand did not start within {LIMIT} s"
        time.sleep(0.02)
    return time.time()
