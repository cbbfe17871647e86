"""MariaDB, slurmdbd, slurmctld and one node in containers, with the files of a stack."""

import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from components import conventions as c
from components.settings import Settings
from components.slurmconf import accounting_files
from local import host
from tests.support import open_shells
from tests.support.containers import Start, containers, put
from tests.support.slurmctld import (
    BRIEF,
    Slurmctld,
    accounts_of,
    controller_address,
    prepare,
    start_controller,
    start_worker,
    without_jail,
)
from tests.support.stack import settings
from tests.support.waiting import eventually

NODE = "cpu-0"
PASSWORD = "a-tests-own"
_PRIVATE = f"""
set -e
chown slurm {c.DBD_RUN}
chmod 0700 {c.DBD_RUN}
chgrp -R slurm {c.DATABASE_PASSWORD}
"""
_START = f"SLURM_CONF={c.DBD_RUN}/slurm.conf exec {c.PROGRAMS}/slurmdbd >>/tmp/log 2>&1"
_ANSWERS = (
    f"SLURM_CONF={c.DBD_RUN}/slurm.conf timeout 10 sacctmgr -n -P show cluster format=cluster"
)
_MARIADB = {
    "DATABASE": "slurm_acct_db",
    "DATABASE_USER": "slurm",
}
_OPTIONS = "--performance-schema=OFF --max-allowed-packet=64M"
ROOM = "400m"
"""Size of a test database's volume, small enough for tests to fill it."""
POOL = 32
"""The database's memory for tables, in MiB."""
USERS = {"researcher": 2000, "student": 1500}


@dataclass(frozen=True)
class Database:
    """MariaDB on a separate volume."""

    container: Slurmctld
    pool: int
    """Memory for tables, in MiB."""

    def start(self) -> None:
        """Start the database, and wait until it answers."""
        options = f"{_OPTIONS} --innodb-buffer-pool-size={self.pool}M"
        self.container.container.exec_run(
            ["bash", "-c", f"exec {c.PROGRAMS}/mariadbd {options} >>/tmp/log 2>&1"],
            user="mysql",
            environment=_MARIADB,
            detach=True,
        )
        eventually("the database answers", lambda: self.sql("SELECT 1", "|| true") == "1")

    def sql(self, statement: str, otherwise: str = "") -> str:
        """Run a statement as administrator, and return the output."""
        client = f"mariadb --no-defaults --socket={c.DATABASE_RUN}/mysqld.sock -N"
        return self.container.run(f'{client} -e "{statement}" 2>&1 {otherwise}', "mysql").strip()

    def log(self) -> str:
        return self.container.run("cat /tmp/log", "root")

    def kill(self, signal: str = "KILL") -> None:
        """Send a signal to the database, and wait until it has exited."""
        pid = self.container.run(f"cat {c.DATABASE_RUN}/mysqld.pid", "root").strip()
        self.container.run(f"kill -{signal} {pid}", "root")
        runs = f"[ -e /proc/{pid} ] && echo yes || true"
        eventually("the database has exited", lambda: not self.container.run(runs, "root"))

    @contextmanager
    def keeping_nothing(self) -> Iterator[None]:
        """Let the database accept statements but block commits, during the `with` block."""
        hold = "BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT; SELECT SLEEP(300)"
        client = f"exec mariadb --no-defaults --socket={c.DATABASE_RUN}/mysqld.sock"
        self.container.container.exec_run(
            ["bash", "-c", f'{client} -e "{hold}"'], user="mysql", detach=True
        )
        held = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(300%'"
        eventually("commits are blocked", lambda: self.sql(held) == "2")
        yield
        self.container.run("pkill -x mariadb || true", "root")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill the volume of the database during the `with` block."""
        fill = f"{c.DATABASE_DATA}/fill"
        self.container.run(f"cat /dev/zero >{fill} 2>/dev/null || true", "root")
        try:
            yield
        finally:
            self.container.run(f"rm {fill}", "root")


@dataclass(frozen=True)
class Dbd:
    """slurmdbd in a container."""

    container: Slurmctld

    def install(self, config: Settings, password: str = PASSWORD) -> None:
        files = {f"{c.ACCOUNTING_ETC}/{k}": v for k, v in accounting_files(config).items()}
        put(self.container.container, files)
        put(self.container.container, {f"{c.DATABASE_PASSWORD}/password": password})
        self.container.run(f"mkdir -p {c.DBD_RUN}; {_PRIVATE}", "root")

    def begin(self) -> None:
        """Start slurmdbd without waiting."""
        self.container.container.exec_run(["bash", "-c", _START], user="slurm", detach=True)

    def start(self) -> None:
        """Start slurmdbd, and wait until the database answers through it."""
        self.begin()
        eventually("slurmdbd answers", self.answers)

    def await_answer(self) -> None:
        """Wait until the database answers through slurmdbd; restart slurmdbd if it has exited.

        Raises AssertionError with the end of slurmdbd's log.
        """
        try:
            eventually("slurmdbd answers", self._answers_again)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-2000:]}") from None

    def _answers_again(self) -> bool:
        if not self.container.run("pgrep -x slurmdbd || true"):
            self.begin()
        return self.answers()

    def answers(self) -> bool:
        code, _ = open_shells.run(self.container.container, _ANSWERS, "slurm")
        return code == 0

    def stop(self) -> None:
        self.container.run("pkill -x slurmdbd || true", "root")
        eventually(
            "slurmdbd has exited", lambda: not self.container.run("pgrep -x slurmdbd || true")
        )

    def log(self) -> str:
        return self.container.run("cat /tmp/log 2>/dev/null || true", "root")


@dataclass(frozen=True)
class Cluster:
    """A running cluster with accounting."""

    database: Database
    dbd: Dbd
    slurmctld: Slurmctld
    worker: Slurmctld
    join: Callable[[str], Slurmctld]
    """Start a container from one of the stack's images as a client of Slurm."""
    start: Start
    """Start other containers on the cluster's network."""

    def user(self, command: str, name: str = "researcher") -> str:
        """Run a user's command on the node for at most two minutes, and return its output."""
        ids = f"{USERS[name]}:{USERS[name]}"
        bounded = ["timeout", "120", "bash", "-c", command]
        code, text = open_shells.run(self.worker.container, bounded, ids, workdir="/tmp")
        assert code == 0, f"{command}: exit code {code}; output: {text}"
        return text.strip()

    def revive(self) -> None:
        """Restart slurmctld if slurmctld does not answer, as the liveness probe does in a stack.

        Rarely, slurmdbd and slurmctld 24.11.5 wait for each other (see docs/accounting.md).
        """
        code, _ = open_shells.run(self.slurmctld.container, "timeout 30 sinfo", "slurm")
        if code:
            self.slurmctld.run("pkill -KILL -x slurmctld || true")
            self.slurmctld.start()

    def records(self, *fields: str, where: str = "--allusers") -> list[tuple[str, ...]]:
        """Return jobs without steps, as sacct shows them to the slurm user."""
        output = self.slurmctld.run(f"sacct -X -n -P {where} --format={','.join(fields)}")
        return [tuple(line.split("|")) for line in output.splitlines()]


def start_database(
    start: Start, volume: str | None = None, pool: int = POOL, **options: Any
) -> Database:
    """Create the container of a database, but do not start the database.

    The data is on the volume named `volume`. Without it, `options` must mount a place for the data.
    """
    volumes = {"volumes": {volume: {"bind": c.DATABASE_DATA}}} if volume else {}
    container = start("database", entrypoint="", **volumes, **options)
    put(container, {f"{c.DATABASE_PASSWORD}/password": PASSWORD})
    database = Database(Slurmctld(container), pool)
    database.container.run(f"chown mysql {c.DATABASE_DATA}", "root")
    return database


def start_dbd(start: Start, secret: str, database: Database | None = None, **hosts: str) -> Dbd:
    known = {c.DATABASE: database.container.address} if database else {}
    return Dbd(prepare(start("accounting", extra_hosts={**known, **hosts}), secret))


@contextmanager
def volume(size: str | None) -> Iterator[str]:
    """Create a volume: in memory if a size is given, otherwise on disk."""
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size}"} if size else {}
    made = host.engine(print).volumes.create(
        f"slurmstack-accounting-{uuid.uuid4().hex[:8]}", driver_opts=options
    )
    try:
        yield str(made.name)
    finally:
        made.remove(force=True)


def accounted(edit: Callable[[dict[str, Any]], object] = lambda values: None) -> Settings:
    """Return settings with accounting that samples tasks every second.

    Jobs require no association, because these tests create none.
    """

    def changed(values: dict[str, Any]) -> None:
        edit(values)
        values.setdefault("slurm", {"timeouts": BRIEF})
        own = values.get("accounting", {})
        values["accounting"] = {"gather_interval": 1, "enforce": [], **own}

    return settings(changed)


@contextmanager
def one_cluster(config: Settings, room: str | None = ROOM, pool: int = POOL) -> Iterator[Cluster]:
    """Start a cluster of one node with accounting.

    `room` is the size of the database's volume. With None, the volume is on disk and has no limit.
    `pool` is the database's memory for tables, in MiB.
    """
    secret = secrets.token_hex(64)
    domain = config.cluster.domain
    accounts = accounts_of(config)
    with volume(room) as data, containers("slurmstack-accounting") as start:
        database = start_database(start, data, pool)
        database.start()
        dbd = start_dbd(start, secret, database)
        put(dbd.container.container, accounts)
        dbd.install(config)
        dbd.start()
        known = {c.accounting_address(config.namespace, domain): dbd.container.address}
        controller = start_controller(start, secret, hosts=known)
        controller.install(config, without_jail(config))
        controller.start()
        worker = start_worker(
            start,
            secret,
            NODE,
            "CPUs=8 RealMemory=4000 Feature=cpu",
            controller,
            hosts=known,
            before=lambda node: put(node.container, accounts),
        )
        idle = "sinfo --noheader --format=%T"
        eventually("the node is idle", lambda: "idle" in controller.run(idle))
        address = controller_address()

        def join(image: str) -> Slurmctld:
            given = {"SLURM_CONF_SERVER": c.conf_server(address)}
            hosts = {**known, address: controller.address}
            container = start(image, entrypoint="", extra_hosts=hosts, environment=given)
            put(container, accounts)
            return prepare(container, secret)

        yield Cluster(database, dbd, controller, worker, join, start)
        controller.stop()
