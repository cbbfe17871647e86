"""The stack's Slurm without Kubernetes: the same images and files in plain containers."""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from docker.types import Mount

from components import conventions as c
from components.identity import users as people
from components.settings import Nodeset, Settings
from components.slurmconf import config_files, node_conf, node_options
from tests.support.accounting import start_database, start_dbd, volume
from tests.support.containers import Start, containers, put
from tests.support.slurmctld import (
    Slurmctld,
    controller_address,
    prepare,
    start_controller,
    start_worker,
)


@contextlib.contextmanager
def slurm(settings: Settings, nodesets: Sequence[str], jail: Path) -> Iterator[Slurmctld]:
    """Run these nodesets outside the stack, and yield a container that can submit jobs.

    Nodes have the same size as on the stack. Jobs run in the stack's own jail. slurmctld's state is
    on the same disk as on the stack. Only addresses and keys differ.
    """
    secret = secrets.token_hex(64)
    files = {f"{c.SLURM_ETC}/{name}": text for name, text in config_files(settings).items()}
    accounts = {
        f"{c.EXTRAUSERS}/passwd": people.passwd(settings.users),
        f"{c.EXTRAUSERS}/group": people.group(settings.users, settings.groups),
    }
    with containers("slurmstack-bench") as start, volume(None) as data:
        known = {}
        if settings.accounting.enabled:
            database = start_database(start, data)
            database.start()
            dbd = start_dbd(start, secret, database)
            dbd.install(settings)
            dbd.start()
            name = c.accounting_address(settings.namespace, settings.cluster.domain)
            known = {name: dbd.container.address}
        # Use a volume, because writes to a container's own layer cost more.
        controller = start_controller(
            start, secret, known, mounts=[Mount(c.CONTROLLER_SPOOL, None, type="volume")]
        )
        controller.run(f"chown slurm {c.CONTROLLER_SPOOL}", user="root")
        put(controller.container, {**files, **accounts})
        controller.start()
        for nodeset in settings.nodesets:
            if nodeset.name in nodesets:
                for node in c.node_names(nodeset.name, nodeset.replicas):
                    _start_node(start, secret, node, nodeset, controller, jail, accounts)
        login = prepare(
            start(
                # Use the controller's image, because the login image has no Slurm commands.
                "controller",
                hostname="login",
                extra_hosts={controller_address(): controller.address},
            ),
            secret,
        )
        put(login.container, {**files, **accounts})
        yield login
        controller.stop()


def _start_node(
    start: Start,
    secret: str,
    node: str,
    nodeset: Nodeset,
    controller: Slurmctld,
    jail: Path,
    accounts: dict[str, str],
) -> None:
    worker = start_worker(
        start,
        secret,
        node,
        node_conf(nodeset),
        controller,
        before=lambda worker: put(
            worker.container, {f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}": node_options(nodeset)}
        ),
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        mem_limit=f"{nodeset.memory}m",
        shm_size=f"{nodeset.memory // 2}m",
        mounts=[
            Mount(c.JAIL, str(jail), type="bind"),
            Mount(c.WORKER_SPOOL, None, type="volume"),
            Mount(c.WORKER_SCRATCH, None, type="volume"),
        ],
    )
    put(worker.container, accounts)
