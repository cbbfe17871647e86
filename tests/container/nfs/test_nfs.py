"""The jail's server, with the rights and the configuration that the component gives it."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from docker.models.containers import Container

from components import conventions as c
from components.storage.nfs import ganesha_conf
from tests.container.nfs.client import (
    DENIED,
    GRACE,
    MINOR_VERSION,
    NO_GRACE,
    Attributes,
    Machine,
    NfsError,
)
from tests.support.containers import containers
from tests.support.graph import container, record
from tests.support.slurmctld import Slurmctld
from tests.support.stack import config
from tests.support.waiting import eventually

ADA, BOB = 2000, 2001
SERVED = {"server": {"machines": ["10.0.0.0/16"]}}


class Server:
    """Ganesha in a container that has what its pod's has, and nothing else."""

    def __init__(self, container: Container) -> None:
        self._inside = Slurmctld(container)
        self.address = self._inside.address

    @property
    def machine(self) -> str:
        """The address by which it sees this machine."""
        (network,) = self._inside.container.attrs["NetworkSettings"]["Networks"].values()
        return str(network["Gateway"])

    def run(self, command: str) -> str:
        return self._inside.run(command, "root")

    def begin(self, *machines: str) -> None:
        conf = ganesha_conf(machines)
        self.run(f"cat >{c.JAIL_SERVER_ETC}/ganesha.conf <<'END'\n{conf}END")
        self.run(f"{c.PROGRAMS}/serve >>/run/ganesha/log 2>&1 &")

    def start(self, *machines: str) -> None:
        """Begins, and waits until it answers."""
        self.begin(*machines)
        listens = f": 2>/dev/null </dev/tcp/127.0.0.1/{c.NFS_PORT} && echo yes || true"
        eventually("it listens", lambda: "yes" in self.run(listens))

    def kill(self) -> None:
        """Kills it, and waits until it is gone."""
        gone = "while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
        self.run(f"pid=$(cat /run/ganesha/pid); kill -KILL $pid; {gone}; rm /run/ganesha/pid")


def profile(*refused: str) -> str:
    """A seccomp profile that refuses some system calls, for Docker."""
    calls = [{"names": list(refused), "action": "SCMP_ACT_ERRNO"}] if refused else []
    return f"seccomp={json.dumps({'defaultAction': 'SCMP_ACT_ALLOW', 'syscalls': calls})}"


Make = Callable[[str], Server]
"""Makes a container in which nothing is served yet, under a seccomp profile."""


@pytest.fixture(scope="module")
def make() -> Iterator[Make]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        graph = record(monkeypatch, config(lambda values: values.update(jail=SERVED)))
    spec = container(graph, "jail-server-ganesha")
    security = spec["securityContext"]
    paths = {mount["name"]: mount["mountPath"] for mount in spec["volumeMounts"]}
    with containers("slurmstack-test-nfs") as start:
        yield lambda seccomp: Server(
            start(
                "nfs",
                hostname=f"{c.JAIL_SERVER}-0",
                cap_drop=security["capabilities"]["drop"],
                cap_add=security["capabilities"]["add"],
                read_only=security["readOnlyRootFilesystem"],
                tmpfs={paths["run"]: "", paths["tmp"]: ""},
                security_opt=[seccomp],
                volumes=[paths["data"], paths["config"]],
            )
        )


@pytest.fixture(scope="module")
def idle(make: Make) -> Server:
    # Docker's own profile may be as old as to keep name_to_handle_at(2) from who is no
    # administrator, as pods' runtimes did (moby/moby#45766, containerd/containerd#8752).
    return make(profile())


@pytest.fixture
def server(idle: Server) -> Iterator[Server]:
    """It serves this machine, and has nothing yet."""
    idle.run(f"rm -rf {c.JAIL_SERVED}/*")
    idle.start(f"{idle.machine}/32")
    yield idle
    idle.kill()


def refused(status: int, what: Callable[[], object]) -> None:
    with pytest.raises(NfsError) as told:
        what()
    assert told.value.status == status


def test_root_fills_the_jail_and_users_have_what_is_theirs(server: Server) -> None:
    with Machine(server.address, "node-1") as machine, Machine(server.address, "node-2") as other:
        for one in (machine, other):
            one.has_reclaimed()
        machine.folder("home")
        machine.folder("home/ada", mode=0o700)
        machine.give("home/ada", ADA)

        machine.uid = ADA
        machine.write(machine.open("home/ada/notes", create=True), b"one, two")

        other.uid = ADA
        assert other.read(other.open("home/ada/notes")) == b"one, two"
        assert other.look("home/ada/notes") == Attributes(0o644, str(ADA), str(ADA))
        other.uid = BOB
        refused(DENIED, lambda: other.open("home/ada/notes"))
        refused(DENIED, lambda: other.open("home/hers", create=True))
        other.uid = 0
        other.give("home/ada/notes", 0)
        assert other.look("home/ada/notes").owner == "0"


def test_a_server_that_is_killed_costs_nobody_a_file_that_is_open(server: Server) -> None:
    with Machine(server.address, "node-1") as machine:
        machine.has_reclaimed()
        opened = machine.open("log", create=True)
        machine.write(opened, b"before")

        server.kill()
        server.start(f"{server.machine}/32")

        with Machine(server.address, "node-1") as back, Machine(server.address, "node-2") as new:
            refused(NO_GRACE, lambda: new.reclaim(opened))
            again = back.reclaim(opened)
            assert back.read(again) == b"before"
            new.has_reclaimed()
            refused(GRACE, lambda: new.open("log"))
            began = time.monotonic()
            back.has_reclaimed()
            eventually("the others wait no longer", lambda: opens(new, "log"))
            assert time.monotonic() - began < 30, "everybody is back, so that nobody is waited for"
            back.write(again, b"afterwards")
            back.close(again)


def opens(machine: Machine, path: str) -> bool:
    try:
        machine.open(path)
    except NfsError as error:
        if error.status == GRACE:
            return False
        raise
    return True


def test_what_machines_have_open_is_known_from_the_volume_alone(server: Server) -> None:
    with Machine(server.address, "node-1") as machine:
        machine.has_reclaimed()
        opened = machine.open("log", create=True)

        server.kill()
        server.run(f"rm -rf {c.JAIL_SERVED}/recovery")
        server.start(f"{server.machine}/32")

        with Machine(server.address, "node-1") as back:
            refused(NO_GRACE, lambda: back.reclaim(opened))


def test_nobody_else_mounts_the_jail_and_nobody_by_an_older_protocol(server: Server) -> None:
    refused(MINOR_VERSION, lambda: Machine(server.address, "node-1", minor=0))
    server.kill()

    server.start("192.0.2.0/24", "2001:db8::/64", "2001:db8::1/128")

    with Machine(server.address, "node-1") as machine:
        machine.has_reclaimed()
        refused(DENIED, lambda: machine.folder("home"))


def test_a_server_that_cannot_serve_the_jail_says_why_and_ends(make: Make) -> None:
    server = make(profile("name_to_handle_at"))
    server.begin(f"{server.machine}/32")

    eventually("it says why", lambda: "name_to_handle_at(2)" in server.run("cat /run/ganesha/log"))
    eventually("it has ended", lambda: not server.run("pidof ganesha.nfsd || true"))
