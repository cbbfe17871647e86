"""What goes wrong on a cluster, for as long as a test wants it."""

import contextlib
import json
from collections.abc import Iterator

from components import conventions as c
from components import monitoringconf
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.health.conftest import AWAY, BROKEN, COLLECTOR_NAMESPACE, WELL, Node, operator


@contextlib.contextmanager
def without(cluster: Cluster, deployment: str) -> Iterator[None]:
    """A daemon is not there."""
    scale = ("scale", f"deployment/{deployment}")
    before = cluster.kubectl("get", *scale[1:], "-o", "jsonpath={.spec.replicas}")
    cluster.kubectl(*scale, "--replicas=0")
    eventually(f"no {deployment} is left", lambda: not cluster.pods(deployment), 120)
    try:
        yield
    finally:
        cluster.kubectl(*scale, f"--replicas={before}")
        # A second controller that waits is not ready.
        ready = ("--for=jsonpath={.status.readyReplicas}=1", "--timeout=150s")
        cluster.kubectl("wait", f"deployment/{deployment}", *ready, timeout=180)


@contextlib.contextmanager
def broken_gpus(cluster: Cluster) -> Iterator[None]:
    """Checks find errors on both nodes' GPUs."""
    nodes = [Node(cluster, name) for name in ("cpu-0", "cpu-1")]
    for one in nodes:
        one.prints(BROKEN)
    try:
        yield
    finally:
        for one in nodes:
            one.prints(WELL)
        for one in nodes:
            one.is_back(120)
        for one in nodes[:1]:
            one.root("rm -f /usr/local/bin/nvidia-smi")


@contextlib.contextmanager
def drained_by_hand(cluster: Cluster) -> Iterator[None]:
    """Somebody takes both nodes out of service."""
    update = ("scontrol", "update", "nodename=cpu-[0-1]")
    operator(cluster, *update, "state=drain", "reason=mine")
    try:
        yield
    finally:
        operator(cluster, *update, "state=resume")


@contextlib.contextmanager
def failing_jobs(cluster: Cluster) -> Iterator[None]:
    """Jobs fail in a burst on one node."""
    cluster.run("sbatch --array=1-12 --nodelist=cpu-1 --output=/dev/null --wrap='exit 1'")
    yield


@contextlib.contextmanager
def silent_nodes(cluster: Cluster) -> Iterator[None]:
    """No node answers slurmctld, which asks each of them every minute."""
    nodes = ("cpu-0", "cpu-1")
    for node in nodes:
        cluster.signal("STOP", "munged", node, "munge")
    try:
        yield
    finally:
        for node in nodes:
            cluster.signal("CONT", "munged", node, "munge")
        for node in nodes:
            Node(cluster, node).is_back(120)


@contextlib.contextmanager
def flapping(cluster: Cluster) -> Iterator[None]:
    """A node's GPU is broken and well by turns; of a count, Prometheus misses the first."""
    node = Node(cluster, "cpu-1")
    for _ in range(5):
        node.prints(BROKEN)
        node.is_drained_for("check:gpu-ecc", 120)
        node.prints(WELL)
        node.is_back(120)
    yield


@contextlib.contextmanager
def records_that_wait(cluster: Cluster) -> Iterator[None]:
    """Jobs run while slurmdbd is not there."""
    with without(cluster, c.ACCOUNTING):
        cluster.run("sbatch --array=1-10 --output=/dev/null --wrap=true")
        yield


@contextlib.contextmanager
def blocked_queue(cluster: Cluster) -> Iterator[None]:
    """An edit of the settings after which slurmctld starts no job, while a node is idle."""
    never = {"parameters": {"defer": True, "sched_interval": -1, "bf_interval": -1}}
    try:
        with cluster.edited(lambda values: values.update(slurm={"scheduler": never})):
            cluster.deploy("up")
            cluster.run("sbatch --output=/dev/null --wrap=true")
            yield
    finally:
        cluster.run("scancel --user=researcher")
        cluster.deploy("up")


@contextlib.contextmanager
def refused_configuration(cluster: Cluster) -> Iterator[None]:
    """Prometheus is told to read a configuration that is none."""
    kind = ("configmap", c.MONITORING_CONFIG)
    before = json.loads(cluster.kubectl("get", *kind, "-o", "json"))["data"]
    read = ("exec", f"{c.MONITORING}-0", "-c", "prometheus", "--")

    def becomes(text: str) -> None:
        data = json.dumps({"data": {monitoringconf.PROMETHEUS_FILE: text}})
        cluster.kubectl("patch", *kind, "--type=merge", f"--patch={data}")
        path = f"{monitoringconf.MONITORING_ETC}/{monitoringconf.PROMETHEUS_FILE}"
        eventually("it is there", lambda: cluster.kubectl(*read, "cat", path) == text, 90)
        cluster.kubectl(*read, "sh", "-c", "kill -HUP 1")

    becomes("none: [")
    try:
        yield
    finally:
        becomes(before[monitoringconf.PROMETHEUS_FILE])


@contextlib.contextmanager
def away_collector(cluster: Cluster) -> Iterator[None]:
    """Whoever takes the daemons' lines answers nothing."""
    there = ("exec", f"--namespace={COLLECTOR_NAMESPACE}", "receiver", "--")
    cluster.kubectl(*there, "touch", AWAY)
    try:
        yield
    finally:
        cluster.kubectl(*there, "rm", AWAY)
