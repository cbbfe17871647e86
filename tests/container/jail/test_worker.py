"""A worker accepts jobs only with a jail, and detects the CPUs of its machine."""

import secrets
from collections.abc import Iterator

import pytest

from agents.cpus import Cpu, arrange, topology
from components import conventions as c
from components.slurmconf import config_files
from tests.support import open_shells
from tests.support.containers import containers, put
from tests.support.slurmctld import (
    FIND_SLURMD,
    Slurmctld,
    accounts_of,
    kill_slurmd,
    start_controller,
    start_slurmd,
    start_worker,
)
from tests.support.spank import COPY_FILES, MAKE_MOUNT_POINTS, VOLUMES
from tests.support.stack import alone
from tests.support.waiting import eventually

NODE = "cpu-0"
READY = f"{c.PROGRAMS}/ready"


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Slurmctld, Slurmctld]]:
    """slurmctld, and a worker with a jail."""
    config = alone()
    secret = secrets.token_hex(64)
    with containers("storage-worker") as start:
        controller = start_controller(start, secret)
        controller.install(config)
        files = {f"{c.SLURM_ETC}/{name}": text for name, text in config_files(config).items()}
        put(controller.container, files)
        controller.start()

        def prepare(worker: Slurmctld) -> None:
            worker.run(f"install -d {c.NODE_SETTINGS} {c.PROGRAMS}/scripts", user="root")
            put(worker.container, accounts_of(config))
            worker.run(COPY_FILES, user="root")
            worker.run(MAKE_MOUNT_POINTS, user="root")

        worker = start_worker(
            start,
            secret,
            NODE,
            "CPUs=2 RealMemory=2000 Feature=cpu",
            controller,
            before=prepare,
            volumes=VOLUMES,
        )
        wait_until_ready(controller, worker)
        yield controller, worker


def wait_until_ready(controller: Slurmctld, worker: Slurmctld) -> None:
    eventually("the node is idle", lambda: state(controller).startswith("idle"))
    eventually(
        "the readiness probe succeeds", lambda: open_shells.run(worker.container, READY)[0] == 0
    )


def state(controller: Slurmctld) -> str:
    return controller.run("sinfo --noheader --Node --format='%T %E'").strip()


def test_node_takes_jobs_only_while_its_jail_exists(
    node: tuple[Slurmctld, Slurmctld],
) -> None:
    controller, worker = node
    kill_slurmd(worker)
    controller.run(f"scontrol delete nodename={NODE}", user="root")
    worker.run(f"mv {c.JAIL_MARKER} /tmp/away", user="root")
    start_slurmd(worker)
    eventually(
        "the worker logs that it waits for the jail",
        lambda: "waiting for the jail" in worker.run("cat /tmp/log"),
    )
    assert worker.run(f"{FIND_SLURMD} || echo none").strip() == "none"
    code, _ = open_shells.run(worker.container, READY)
    assert code != 0
    assert state(controller) == ""

    worker.run(f"mv /tmp/away {c.JAIL_MARKER}", user="root")
    wait_until_ready(controller, worker)

    worker.run(f"mv {c.JAIL_MARKER} /tmp/away", user="root")
    code, output = open_shells.run(worker.container, READY)
    assert code == 1
    assert c.JAIL_MARKER in output
    assert state(controller) == "drained slurmstack:jail"

    worker.run(f"mv /tmp/away {c.JAIL_MARKER}", user="root")
    assert open_shells.run(worker.container, READY)[0] == 0
    assert state(controller).startswith("idle")


DRAINED = ("drained new disk", "drained* new disk")
"""Slurm adds a star to the state of a node whose slurmd did not answer recently."""


def test_drain_by_an_operator_stays_when_the_jail_returns(
    node: tuple[Slurmctld, Slurmctld],
) -> None:
    controller, worker = node
    controller.run(f"scontrol update nodename={NODE} state=drain reason='new disk'", user="root")

    worker.run(f"mv {c.JAIL_MARKER} /tmp/away", user="root")
    assert open_shells.run(worker.container, READY)[0] == 1
    assert state(controller) in DRAINED
    worker.run(f"mv /tmp/away {c.JAIL_MARKER}", user="root")
    assert open_shells.run(worker.container, READY)[0] == 0

    assert state(controller) in DRAINED
    controller.run(f"scontrol update nodename={NODE} state=resume", user="root")


def test_node_drains_if_it_cannot_provide_required_confinement(
    node: tuple[Slurmctld, Slurmctld],
) -> None:
    controller, worker = node
    required = f"{c.NODE_SETTINGS}/{c.CONFINEMENT_REQUIRED}"
    assert open_shells.run(worker.container, READY)[0] == 0
    # Simulate a machine that cannot confine jobs.
    put(worker.container, {"/run/slurmstack/node/unconfined": "not to their CPUs: there are few"})

    assert open_shells.run(worker.container, READY)[0] == 0, "confinement is not required yet"
    put(worker.container, {required: "yes"})
    code, output = open_shells.run(worker.container, READY)
    assert (code, output.strip()) == (1, "not to their CPUs: there are few")
    assert state(controller).replace("*", "") == "drained slurmstack:confinement"

    worker.run(f"rm {required}", user="root")
    assert open_shells.run(worker.container, READY)[0] == 0
    assert state(controller).startswith("idle")


def test_slurmd_waits_while_required_confinement_is_impossible(
    node: tuple[Slurmctld, Slurmctld],
) -> None:
    _, worker = node
    required = f"{c.NODE_SETTINGS}/{c.CONFINEMENT_REQUIRED}"
    put(worker.container, {required: "yes"})
    kill_slurmd(worker)

    # Request more CPUs than any machine has.
    start_slurmd(worker, NODE_SHAPE="CPUs=9999")
    eventually(
        "the worker logs why it waits", lambda: "needs 9999 CPUs" in worker.run("cat /tmp/log")
    )
    assert worker.run(f"{FIND_SLURMD} || echo none").strip() == "none"

    worker.run(f"rm {required}", user="root")
    eventually("slurmd runs", lambda: worker.run(f"{FIND_SLURMD} || true").strip())


@pytest.mark.parametrize(
    ("cpus", "shape"),
    [
        ([Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1)], ("1", "2", "1")),
        ([Cpu(0, 0, 0, 0), Cpu(0, 0, 0, 1), Cpu(1, 1, 0, 2), Cpu(1, 1, 0, 3)], ("2", "1", "2")),
        # The numbers 0, 1, 3 and 4 are missing, so topology() adds four CPUs, in two more sockets.
        ([Cpu(0, 0, 2, 2), Cpu(0, 0, 2, 5)], ("3", "1", "2")),
    ],
)
def test_slurmd_detects_the_cpus_of_the_topology_file(
    node: tuple[Slurmctld, Slurmctld], cpus: list[Cpu], shape: tuple[str, str, str]
) -> None:
    _, worker = node
    put(worker.container, {"/tmp/shown.xml": topology(cpus, arrange(cpus))})

    # Move away the topology that slurmd cached at its previous start.
    kept = f"{c.WORKER_SPOOL}/hwloc_topo_whole.xml"
    worker.run(f"mv {kept} /tmp/kept.xml", user="root")
    output = worker.run("HWLOC_XMLFILE=/tmp/shown.xml slurmd -C", user="root").split()
    worker.run(f"mv /tmp/kept.xml {kept}", user="root")

    fields = dict(word.split("=", 1) for word in output if "=" in word)
    assert tuple(
        fields[key] for key in ("SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
    ) == (shape)
