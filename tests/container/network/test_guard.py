"""The guard in a pod's network: what users see of it, and whether they get past it."""

import pytest
from docker.models.containers import Container

from components import conventions as c
from tests.container.network.world import API, DNS, OPEN, RESEARCHER, World, run
from tests.support.containers import put

REFUSED = "ECONNREFUSED"
USERS = {
    "a user": RESEARCHER,
    "slurm": c.SLURM_ID,
    "munge": c.MUNGE_ID,
    "nobody": c.NOBODY_ID,
    "an id that a user may map": 100_000,
}
TARGETS = {
    "metadata": ("metadata", 80),
    "metadata, at a port for names": ("metadata", 53),
    "what the settings refuse, by IPv6": ("refused6", 80),
    "the API": ("api", API),
    "the API, at another port": ("api", OPEN),
    "an API server": ("anybody", 6443),
    "a kubelet": ("anybody", 10250),
    "a kubelet's port for reading": ("anybody", 10255),
    "NFS": ("anybody", 2049),
    "Lustre": ("anybody", 988),
}


@pytest.fixture(scope="module")
def guard(world: World) -> Container:
    return world.beside("guard", "NET_ADMIN")


@pytest.fixture(autouse=True)
def guarded(world: World, guard: Container) -> None:
    """The filter is set anew for each test, as when a pod comes back on its network."""
    code, said = world.run_guard(guard)
    assert code == 0, said


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("user", USERS)
def test_it_is_refused_at_once_to_everybody_but_root(world: World, user: str, target: str) -> None:
    name, port = TARGETS[target]
    address = getattr(world, name)

    assert world.ask(USERS[user], address, port) == REFUSED
    assert world.ask(0, address, port) == "answered"


@pytest.mark.parametrize("how", ["tcp", "udp", "mptcp"])
def test_all_else_is_reached(world: World, how: str) -> None:
    assert world.ask(RESEARCHER, world.anybody, OPEN, how) == "answered"


@pytest.mark.parametrize(("name", "port"), [("metadata", 80), ("api", API), ("anybody", 2049)])
def test_another_protocol_is_refused_alike(world: World, name: str, port: int) -> None:
    address = getattr(world, name)

    assert world.ask(0, address, port, "udp") == "answered"
    assert world.ask(RESEARCHER, address, port, "udp") in (REFUSED, "EPERM")
    # Whose connections the kernel opens with sockets of its own.
    assert world.ask(RESEARCHER, address, port, "mptcp") == REFUSED


def test_who_is_root_in_a_user_namespace_is_no_root(world: World) -> None:
    namespace = ("unshare", "--user", "--map-root-user")

    assert world.ask(RESEARCHER, world.api, API, "tcp", *namespace) == REFUSED
    assert world.ask(RESEARCHER, world.anybody, OPEN, "tcp", *namespace) == "answered"


def test_a_network_of_ones_own_leads_nowhere(world: World) -> None:
    namespace = ("unshare", "--user", "--map-root-user", "--net")

    assert world.ask(RESEARCHER, world.api, API, "tcp", *namespace) == "ENETUNREACH"


def test_a_socket_that_is_given_to_root_stays_its_users(world: World) -> None:
    """A user cannot give it away; even who can changes nothing by it."""
    may_chown = (
        *("setpriv", "--reuid", str(RESEARCHER), "--clear-groups"),
        *("--inh-caps", "+chown", "--ambient-caps", "+chown"),
    )

    assert world.ask(0, world.api, API, "given", *may_chown) == REFUSED
    assert world.ask(0, world.anybody, OPEN, "given", *may_chown) == "answered"


def test_a_loopback_has_every_port_of_its_own(world: World) -> None:
    serve = "import socket; s = socket.create_server(('', 10250)); s.accept()[0].sendall(b'!')"
    world.pod.exec_run(["python3", "-c", serve], user=str(RESEARCHER), detach=True)
    for _ in range(50):
        if (said := world.ask(RESEARCHER, "127.0.0.1", 10250)) == "answered":
            break

    assert said == "answered"


def test_a_name_server_is_reached_wherever_it_is(world: World, guard: Container) -> None:
    add = f"cp /etc/resolv.conf /tmp/before; echo nameserver {world.metadata} >>/etc/resolv.conf"
    assert run(world.pod, "sh", "-c", add)[0] == 0
    try:
        world.run_guard(guard)
        for how in ("tcp", "udp"):
            assert world.ask(RESEARCHER, world.metadata, DNS, how) == "answered"
        assert world.ask(RESEARCHER, world.metadata, 80) == REFUSED
    finally:
        run(world.pod, "sh", "-c", "cat /tmp/before >/etc/resolv.conf")


def test_a_forwarded_port_of_ssh_is_the_users_own(world: World) -> None:
    login = world.beside(
        "login", "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "SYS_CHROOT"
    )
    prepare = f"""
    set -e
    ssh-keygen -q -t ed25519 -N '' -f /tmp/key
    ssh-keygen -q -t ed25519 -N '' -f /run/sshd/host_key
    # Not by the login nodes' own configuration: there is no jail here.
    /usr/sbin/sshd -f /dev/null -p {c.SSHD_PORT} -h /run/sshd/host_key \
      -o StrictModes=no -o AuthorizedKeysFile=/tmp/key.pub
    """
    put(login, {f"{c.EXTRAUSERS}/passwd": f"researcher:x:{RESEARCHER}:{RESEARCHER}::/:/bin/sh\n"})
    code, said = run(login, "sh", "-c", prepare)
    assert code == 0, said

    def forward(address: str, port: int) -> str:
        options = ("-p", str(c.SSHD_PORT), "-i", "/tmp/key", "-o", "StrictHostKeyChecking=no")
        return run(login, "ssh", *options, "-W", f"{address}:{port}", "researcher@127.0.0.1")[1]

    assert forward(world.anybody, OPEN).endswith("!")
    assert "Connection refused" in forward(world.api, API)
    assert "Connection refused" in forward(world.metadata, 80)


def test_who_is_refused_may_still_come_in(world: World) -> None:
    """As a machine's probes of sshd do, whatever the settings refuse."""
    serve = "import socket; s = socket.create_server(('', 2223)); s.accept()[0].sendall(b'!')"
    world.pod.exec_run(["python3", "-c", serve], detach=True)
    world.pod.reload()
    networks = world.pod.attrs["NetworkSettings"]["Networks"]
    (address,) = (
        one["IPAddress"] for name, one in networks.items() if name.endswith("-link-local")
    )
    ask = (
        "import socket, time\nfor _ in range(50):\n"
        f"  try: print(socket.create_connection(('{address}', 2223), 5).recv(1)); break\n"
        "  except ConnectionRefusedError: time.sleep(0.1)"
    )

    assert run(world.rest, "python3", "-c", ask) == (0, "b'!'\n")


# --- Where it cannot do its work -----------------------------------------------------------------


def test_without_the_right_to_it_the_pod_does_not_start(world: World) -> None:
    powerless = world.beside("guard")

    code, said = world.run_guard(powerless)

    assert code != 0
    assert "Operation not permitted" in said


def test_no_other_container_of_the_pod_lifts_it(world: World) -> None:
    other = world.beside("guard", "SYS_ADMIN", "SYS_PTRACE", "SETUID", "DAC_OVERRIDE")

    code, _ = run(other, "nft", "flush", "ruleset")

    assert code != 0
    assert world.ask(RESEARCHER, world.api, API) == REFUSED


def test_it_waits_for_the_name_of_the_api(world: World, guard: Container) -> None:
    code, said = world.run_guard(guard, "timeout", "8", API_SERVER="kubernetes.invalid")

    assert code == 124
    assert "looking up the address of kubernetes.invalid" in said


def test_a_filter_that_does_not_hold_is_none(world: World, guard: Container) -> None:
    # Root, to whom nothing is refused, stands for a machine whose kernel does not filter.
    code, said = world.run_guard(guard, user=0)

    assert code == 1
    assert f"{world.api} still answers" in said
