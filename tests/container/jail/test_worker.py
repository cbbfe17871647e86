"""A node that has no jail takes no job."""

import secrets
from collections.abc import Iterator

import pytest

from components import conventions as c
from components.slurmconf import config_files
from tests.support import open_shells
from tests.support.containers import containers, put
from tests.support.slurmctld import (
    FIND_SLURMD,
    Slurmctld,
    accounts_of,
    start_controller,
    start_worker,
)
from tests.support.spank import FILL_JAIL, VOLUMES
from tests.support.stack import alone
from tests.support.waiting import eventually

NODE = "cpu-0"
READY = f"{c.SPANK_DIR}/ready"


@pytest.fixture(scope="module")
def node() -> Iterator[tuple[Slurmctld, Slurmctld]]:
    """slurmctld, and a worker whose jail is an empty volume."""
    config = alone()
    secret = secrets.token_hex(64)
    with containers("storage-worker") as start:
        controller = start_controller(start, secret)
        controller.install(config)
        files = {f"{c.SLURM_ETC}/{name}": text for name, text in config_files(config).items()}
        put(controller.container, files)
        controller.start()

        def prepare(worker: Slurmctld) -> None:
            worker.run(f"install -d {c.ISOLATION} {c.SPANK_DIR}/scripts", user="root")
            options = {f"{c.ISOLATION}/{c.NODE_OPTIONS}": ""}
            put(worker.container, options | accounts_of(config))

        worker = start_worker(
            start,
            secret,
            NODE,
            "CPUs=2 RealMemory=2000 Feature=cpu",
            controller,
            before=prepare,
            populated=False,
            volumes=VOLUMES,
        )
        yield controller, worker


def state(controller: Slurmctld) -> str:
    return controller.run("sinfo --noheader --Node --format='%T %E'").strip()


def test_a_node_registers_when_it_has_the_jail_and_drains_while_it_has_not(
    node: tuple[Slurmctld, Slurmctld],
) -> None:
    controller, worker = node
    eventually(
        "it says what it waits for", lambda: "waiting for the jail" in worker.run("cat /tmp/log")
    )
    assert worker.run(f"{FIND_SLURMD} || echo none").strip() == "none"
    code, _ = open_shells.run(worker.container, READY)
    assert code != 0
    assert state(controller) == ""

    worker.run(FILL_JAIL, user="root")
    put(worker.container, {c.JAIL_MARKER: "0\n"})
    eventually("the node is idle", lambda: state(controller).startswith("idle"))
    eventually("it is ready", lambda: open_shells.run(worker.container, READY)[0] == 0)

    worker.run(f"mv {c.JAIL_MARKER} /tmp/away", user="root")
    code, said = open_shells.run(worker.container, READY)
    assert code == 1
    assert c.JAIL_MARKER in said
    assert state(controller) == "drained slurmstack:jail"

    worker.run(f"mv /tmp/away {c.JAIL_MARKER}", user="root")
    assert open_shells.run(worker.container, READY)[0] == 0
    assert state(controller).startswith("idle")


DRAINED = ("drained new disk", "drained* new disk")
"""With the star when slurmd has been silent for a moment."""


def test_a_drain_of_somebody_else_stays(node: tuple[Slurmctld, Slurmctld]) -> None:
    controller, worker = node
    controller.run(f"scontrol update nodename={NODE} state=drain reason='new disk'", user="root")

    worker.run(f"mv {c.JAIL_MARKER} /tmp/away", user="root")
    assert open_shells.run(worker.container, READY)[0] == 1
    assert state(controller) in DRAINED
    worker.run(f"mv /tmp/away {c.JAIL_MARKER}", user="root")
    assert open_shells.run(worker.container, READY)[0] == 0

    assert state(controller) in DRAINED
