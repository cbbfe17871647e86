"""Nodes stand in the order of their numbers, whichever of them comes first."""

import secrets
from collections.abc import Iterator
from functools import partial

import pytest

from tests.support.containers import Start, containers
from tests.support.slurmctld import Slurmctld, start_controller, start_worker, without_jail
from tests.support.stack import alone
from tests.support.waiting import eventually

SIZE = "CPUs=1 RealMemory=1000 Feature=cpu"


class Cluster:
    def __init__(self, start: Start) -> None:
        self._start = start
        self._secret = secrets.token_hex(64)
        self.controller = start_controller(start, self._secret)
        self.controller.install(alone(), without_jail(alone()))
        self.controller.start()

    def start(self, name: str, size: str) -> Slurmctld:
        return start_worker(self._start, self._secret, name, size, self.controller)

    def add(self, ordinal: int, size: str = SIZE) -> Slurmctld:
        """Starts a node and waits until it is idle."""
        name = f"cpu-{ordinal}"
        worker = self.start(name, size)
        eventually(f"{name} is idle", lambda: self.state(name) == "idle")
        return worker

    def remove(self, *workers: Slurmctld) -> None:
        """Ends nodes and deletes their records, as `leave` does."""
        for worker in workers:
            name = worker.run("echo $NODE_NAME").strip()
            worker.run("pkill -x slurmd; while pgrep -x slurmd; do sleep 0.1; done", user="root")
            self.controller.run(f"scontrol delete nodename={name}", user="root")

    def state(self, node: str) -> str:
        return self.controller.run(f"sinfo --noheader --nodes={node} --format=%T").strip()

    def nodes(self, *options: str) -> list[str]:
        """Their names in Slurm's order."""
        shown = self.controller.run(f"scontrol {' '.join(options)} --oneliner show nodes")
        return [line.split()[0].removeprefix("NodeName=") for line in shown.splitlines()]

    def allocated(self, nodes: int) -> str:
        """The nodes of a job, as a user reads them."""
        self.controller.run(f"salloc --nodes={nodes} --job-name=order --no-shell")
        try:
            return self.controller.run("squeue --noheader --format=%N").strip()
        finally:
            self.controller.run("scancel --name=order")
            eventually("it is over", lambda: not self.controller.run("squeue --noheader"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with containers("node-order") as start:
        yield Cluster(start)


def test_the_last_may_come_first(cluster: Cluster) -> None:
    cluster.add(2)

    # The places of the others are kept, and seen by nobody.
    assert cluster.nodes() == ["cpu-2"]
    assert cluster.nodes("--future") == ["cpu-0", "cpu-1", "cpu-2"]
    assert cluster.controller.run("sinfo --noheader --format='%D %N'").split() == ["1", "cpu-2"]

    cluster.add(0)
    cluster.add(1)

    assert cluster.nodes() == ["cpu-0", "cpu-1", "cpu-2"]
    assert cluster.allocated(3) == "cpu-[0-2]"
    assert "slurmstack:" not in cluster.controller.run("scontrol show nodes")


def test_nodes_that_went_together_come_back_in_any_order(cluster: Cluster) -> None:
    cluster.remove(*(cluster.add(ordinal) for ordinal in range(3)))

    for ordinal in (1, 2, 0):
        cluster.add(ordinal)

    assert cluster.allocated(3) == "cpu-[0-2]"


def test_nodes_may_come_before_the_partition_that_they_are_of(cluster: Cluster) -> None:
    def is_idle(name: str) -> bool:
        shown = cluster.controller.run(f"scontrol --oneliner show node {name} || true")
        return "State=IDLE" in shown

    for name in ("cpu-1", "cpu-0"):
        cluster.start(name, "CPUs=1 RealMemory=1000 Feature=later")
        eventually(f"{name} is idle", partial(is_idle, name))
    assert not cluster.controller.run("sinfo --noheader --Node")

    cluster.controller.run("scontrol reconfigure")
    for name in ("cpu-1", "cpu-0"):
        eventually(f"{name} is idle", partial(is_idle, name))
    assert cluster.nodes() == ["cpu-0", "cpu-1"]


def test_a_kept_place_is_made_anew_where_the_nodeset_has_changed(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.add(0, "CPUs=1 RealMemory=1500 Feature=cpu,large")

    shown = cluster.controller.run("scontrol show node cpu-0")

    assert "RealMemory=1500" in shown
    assert "AvailableFeatures=cpu,large" in shown
    assert cluster.nodes() == ["cpu-0", "cpu-1"]


def test_a_kept_place_outlives_a_restart_of_slurmctld(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.controller.stop()
    cluster.controller.start()
    cluster.add(0)

    assert cluster.allocated(2) == "cpu-[0-1]"


def test_a_node_that_is_wanted_and_down_is_named(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.add(0)
    cluster.controller.run("scontrol update nodename=cpu-0 state=down reason=disk", user="root")

    cluster.controller.run("sbatch --nodelist=cpu-0 --wrap=true --output=/dev/null")

    why = "squeue --noheader --format=%R"
    eventually("it is named", lambda: "cpu-0" in cluster.controller.run(why))
