"""The NFS server of the jail, with the capabilities and configuration of its pod."""

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
    """Ganesha in a container with only the capabilities and mounts of the server's pod."""

    def __init__(self, container: Container) -> None:
        self._inside = Slurmctld(container)
        self.address = self._inside.address

    @property
    def machine(self) -> str:
        """Address of this machine, as the server sees it."""
        (network,) = self._inside.container.attrs["NetworkSettings"]["Networks"].values()
        return str(network["Gateway"])

    def run(self, command: str) -> str:
        return self._inside.run(command, "root")

    def begin(self, *machines: str) -> None:
        conf = ganesha_conf(machines)
        self.run(f"cat >{c.JAIL_SERVER_ETC}/ganesha.conf <<'END'\n{conf}END")
        self.run(f"{c.PROGRAMS}/serve >>/run/ganesha/log 2>&1 &")

    def start(self, *machines: str) -> None:
        """Start the server, and wait until it listens."""
        self.begin(*machines)
        listens = f": 2>/dev/null </dev/tcp/127.0.0.1/{c.NFS_PORT} && echo yes || true"
        eventually("the server listens", lambda: "yes" in self.run(listens))

    def kill(self) -> None:
        """Kill the server, and wait until it has exited."""
        gone = "while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
        self.run(f"pid=$(cat /run/ganesha/pid); kill -KILL $pid; {gone}; rm /run/ganesha/pid")


def profile(*refused: str) -> str:
    """Return Docker's option for a seccomp profile that refuses some system calls."""
    calls = [{"names": list(refused), "action": "SCMP_ACT_ERRNO"}] if refused else []
    return f"seccomp={json.dumps({'defaultAction': 'SCMP_ACT_ALLOW', 'syscalls': calls})}"


Make = Callable[[str], Server]
"""Creates a container with a seccomp profile, without starting the server."""


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
    # Permit all system calls: the default profile of an old Docker refuses name_to_handle_at(2), as
    # older container runtimes of Kubernetes did (moby/moby#45766, containerd/containerd#8752).
    return make(profile())


@pytest.fixture
def server(idle: Server) -> Iterator[Server]:
    """A running server with an empty volume, which permits connections from this machine."""
    idle.run(f"rm -rf {c.JAIL_SERVED}/*")
    idle.start(f"{idle.machine}/32")
    yield idle
    idle.kill()


def refused(status: int, what: Callable[[], object]) -> None:
    with pytest.raises(NfsError) as error:
        what()
    assert error.value.status == status


def test_root_fills_the_jail_and_users_own_their_files(server: Server) -> None:
    with Machine(server.address, "node-1") as machine, Machine(server.address, "node-2") as other:
        for one in (machine, other):
            one.reclaim_complete()
        machine.folder("home")
        machine.folder("home/ada", mode=0o700)
        machine.set_owner("home/ada", ADA)

        machine.uid = ADA
        machine.write(machine.open("home/ada/notes", create=True), b"one, two")

        other.uid = ADA
        assert other.read(other.open("home/ada/notes")) == b"one, two"
        assert other.attributes("home/ada/notes") == Attributes(0o644, str(ADA), str(ADA))
        other.uid = BOB
        refused(DENIED, lambda: other.open("home/ada/notes"))
        refused(DENIED, lambda: other.open("home/hers", create=True))
        other.uid = 0
        other.set_owner("home/ada/notes", 0)
        assert other.attributes("home/ada/notes").owner == "0"


def test_open_files_survive_a_kill_of_the_server(server: Server) -> None:
    with Machine(server.address, "node-1") as machine:
        machine.reclaim_complete()
        opened = machine.open("log", create=True)
        machine.write(opened, b"before")

        server.kill()
        server.start(f"{server.machine}/32")

        with Machine(server.address, "node-1") as back, Machine(server.address, "node-2") as new:
            refused(NO_GRACE, lambda: new.reclaim(opened))
            again = back.reclaim(opened)
            assert back.read(again) == b"before"
            new.reclaim_complete()
            refused(GRACE, lambda: new.open("log"))
            began = time.monotonic()
            back.reclaim_complete()
            eventually("the grace period ends for other clients", lambda: can_open(new, "log"))
            assert time.monotonic() - began < 30, "the grace period ends with the last return"
            back.write(again, b"afterwards")
            back.close(again)


def can_open(machine: Machine, path: str) -> bool:
    try:
        machine.open(path)
    except NfsError as error:
        if error.status == GRACE:
            return False
        raise
    return True


def test_server_keeps_its_client_records_on_the_volume(server: Server) -> None:
    with Machine(server.address, "node-1") as machine:
        machine.reclaim_complete()
        opened = machine.open("log", create=True)

        server.kill()
        server.run(f"rm -rf {c.JAIL_SERVED}/recovery")
        server.start(f"{server.machine}/32")

        with Machine(server.address, "node-1") as back:
            refused(NO_GRACE, lambda: back.reclaim(opened))


def test_server_refuses_other_machines_and_older_protocols(server: Server) -> None:
    refused(MINOR_VERSION, lambda: Machine(server.address, "node-1", minor=0))
    server.kill()

    server.start("192.0.2.0/24", "2001:db8::/64", "2001:db8::1/128")

    with Machine(server.address, "node-1") as machine:
        machine.reclaim_complete()
        refused(DENIED, lambda: machine.folder("home"))


def test_server_logs_the_reason_and_exits_if_it_cannot_serve(make: Make) -> None:
    server = make(profile("name_to_handle_at"))
    server.begin(f"{server.machine}/32")

    eventually(
        "the server logs the reason",
        lambda: "name_to_handle_at(2)" in server.run("cat /run/ganesha/log"),
    )
    eventually("the server has exited", lambda: not server.run("pidof ganesha.nfsd || true"))
