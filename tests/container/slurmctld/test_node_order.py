"""slurmctld orders nodes by number, whatever the order of their registration."""

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
        """Start a node, and wait until it is idle."""
        name = f"cpu-{ordinal}"
        worker = self.start(name, size)
        eventually(f"{name} is idle", lambda: self.state(name) == "idle")
        return worker

    def remove(self, *workers: Slurmctld) -> None:
        """Stop nodes and delete their records, as the script `leave` does."""
        for worker in workers:
            name = worker.run("echo $NODE_NAME").strip()
            worker.run("pkill -x slurmd; while pgrep -x slurmd; do sleep 0.1; done", user="root")
            self.controller.run(f"scontrol delete nodename={name}", user="root")

    def state(self, node: str) -> str:
        return self.controller.run(f"sinfo --noheader --nodes={node} --format=%T").strip()

    def nodes(self, *options: str) -> list[str]:
        """Return the node names in Slurm's order."""
        output = self.controller.run(f"scontrol {' '.join(options)} --oneliner show nodes")
        return [line.split()[0].removeprefix("NodeName=") for line in output.splitlines()]

    def allocated(self, nodes: int) -> str:
        """Return the node list of a job on this number of nodes."""
        self.controller.run(f"salloc --nodes={nodes} --job-name=order --no-shell")
        try:
            return self.controller.run("squeue --noheader --format=%N").strip()
        finally:
            self.controller.run("scancel --name=order")
            eventually("the job has ended", lambda: not self.controller.run("squeue --noheader"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with containers("node-order") as start:
        yield Cluster(start)


def test_node_order_does_not_depend_on_registration_order(cluster: Cluster) -> None:
    cluster.add(2)

    # slurmctld reserves records for cpu-0 and cpu-1. Users do not see reserved records.
    assert cluster.nodes() == ["cpu-2"]
    assert cluster.nodes("--future") == ["cpu-0", "cpu-1", "cpu-2"]
    assert cluster.controller.run("sinfo --noheader --format='%D %N'").split() == ["1", "cpu-2"]

    cluster.add(0)
    cluster.add(1)

    assert cluster.nodes() == ["cpu-0", "cpu-1", "cpu-2"]
    assert cluster.allocated(3) == "cpu-[0-2]"
    assert "slurmstack:" not in cluster.controller.run("scontrol show nodes")


def test_removed_nodes_return_to_their_old_positions(cluster: Cluster) -> None:
    cluster.remove(*(cluster.add(ordinal) for ordinal in range(3)))

    for ordinal in (1, 2, 0):
        cluster.add(ordinal)

    assert cluster.allocated(3) == "cpu-[0-2]"


def test_nodes_can_register_before_their_partition_exists(cluster: Cluster) -> None:
    def is_idle(name: str) -> bool:
        output = cluster.controller.run(f"scontrol --oneliner show node {name} || true")
        return "State=IDLE" in output

    for name in ("cpu-1", "cpu-0"):
        cluster.start(name, "CPUs=1 RealMemory=1000 Feature=later")
        eventually(f"{name} is idle", partial(is_idle, name))
    assert not cluster.controller.run("sinfo --noheader --Node")

    cluster.controller.run("scontrol reconfigure")
    for name in ("cpu-1", "cpu-0"):
        eventually(f"{name} is idle", partial(is_idle, name))
    assert cluster.nodes() == ["cpu-0", "cpu-1"]


def test_reserved_record_takes_the_new_description_of_its_nodeset(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.add(0, "CPUs=1 RealMemory=1500 Feature=cpu,large")

    output = cluster.controller.run("scontrol show node cpu-0")

    assert "RealMemory=1500" in output
    assert "AvailableFeatures=cpu,large" in output
    assert cluster.nodes() == ["cpu-0", "cpu-1"]


def test_reserved_position_survives_a_restart_of_slurmctld(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.controller.stop()
    cluster.controller.start()
    cluster.add(0)

    assert cluster.allocated(2) == "cpu-[0-1]"


def test_pending_reason_names_a_requested_node_that_is_down(cluster: Cluster) -> None:
    cluster.add(1)
    cluster.add(0)
    cluster.controller.run("scontrol update nodename=cpu-0 state=down reason=disk", user="root")

    cluster.controller.run("sbatch --nodelist=cpu-0 --wrap=true --output=/dev/null")

    reason = "squeue --noheader --format=%R"
    eventually("the reason names the node", lambda: "cpu-0" in cluster.controller.run(reason))
