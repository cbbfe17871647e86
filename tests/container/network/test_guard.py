"""The guard, a pod's packet filter, blocks connections of users, and users cannot bypass it."""

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
    "a uid that a user can map": 100_000,
}
TARGETS = {
    "metadata": ("metadata", 80),
    "metadata, DNS port": ("metadata", 53),
    "IPv6 address from the settings": ("refused6", 80),
    "the API": ("api", API),
    "the API, other port": ("api", OPEN),
    "an API server": ("anybody", 6443),
    "a kubelet": ("anybody", 10250),
    "a kubelet's read-only port": ("anybody", 10255),
    "NFS": ("anybody", 2049),
    "Lustre": ("anybody", 988),
}


@pytest.fixture(scope="module")
def guard(world: World) -> Container:
    return world.beside("guard", "NET_ADMIN")


@pytest.fixture(autouse=True)
def guarded(world: World, guard: Container) -> None:
    """Install the filter before each test, although the pod's network may already have one."""
    code, output = world.run_guard(guard)
    assert code == 0, output


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("user", USERS)
def test_guard_rejects_connections_of_users_except_root(
    world: World, user: str, target: str
) -> None:
    name, port = TARGETS[target]
    address = getattr(world, name)

    assert world.ask(USERS[user], address, port) == REFUSED
    assert world.ask(0, address, port) == "answered"


@pytest.mark.parametrize("how", ["tcp", "udp", "mptcp"])
def test_unblocked_addresses_stay_reachable(world: World, how: str) -> None:
    assert world.ask(RESEARCHER, world.anybody, OPEN, how) == "answered"


@pytest.mark.parametrize(("name", "port"), [("metadata", 80), ("api", API), ("anybody", 2049)])
def test_guard_also_rejects_udp_and_mptcp(world: World, name: str, port: int) -> None:
    address = getattr(world, name)

    assert world.ask(0, address, port, "udp") == "answered"
    assert world.ask(RESEARCHER, address, port, "udp") in (REFUSED, "EPERM")
    # Also test MPTCP, because the kernel itself opens the TCP sockets of an MPTCP connection.
    assert world.ask(RESEARCHER, address, port, "mptcp") == REFUSED


def test_root_in_a_user_namespace_stays_blocked(world: World) -> None:
    namespace = ("unshare", "--user", "--map-root-user")

    assert world.ask(RESEARCHER, world.api, API, "tcp", *namespace) == REFUSED
    assert world.ask(RESEARCHER, world.anybody, OPEN, "tcp", *namespace) == "answered"


def test_private_network_namespace_has_no_route(world: World) -> None:
    namespace = ("unshare", "--user", "--map-root-user", "--net")

    assert world.ask(RESEARCHER, world.api, API, "tcp", *namespace) == "ENETUNREACH"


def test_socket_whose_owner_becomes_root_stays_blocked(world: World) -> None:
    """Only a user with CAP_CHOWN can change a socket's owner, and that user stays blocked too."""
    may_chown = (
        *("setpriv", "--reuid", str(RESEARCHER), "--clear-groups"),
        *("--inh-caps", "+chown", "--ambient-caps", "+chown"),
    )

    assert world.ask(0, world.api, API, "given", *may_chown) == REFUSED
    assert world.ask(0, world.anybody, OPEN, "given", *may_chown) == "answered"


def test_loopback_ports_stay_reachable(world: World) -> None:
    serve = "import socket; s = socket.create_server(('', 10250)); s.accept()[0].sendall(b'!')"
    world.pod.exec_run(["python3", "-c", serve], user=str(RESEARCHER), detach=True)
    for _ in range(50):
        if (output := world.ask(RESEARCHER, "127.0.0.1", 10250)) == "answered":
            break

    assert output == "answered"


def test_name_server_stays_reachable_at_a_blocked_address(world: World, guard: Container) -> None:
    add = f"cp /etc/resolv.conf /tmp/before; echo nameserver {world.metadata} >>/etc/resolv.conf"
    assert run(world.pod, "sh", "-c", add)[0] == 0
    try:
        world.run_guard(guard)
        for how in ("tcp", "udp"):
            assert world.ask(RESEARCHER, world.metadata, DNS, how) == "answered"
        assert world.ask(RESEARCHER, world.metadata, 80) == REFUSED
    finally:
        run(world.pod, "sh", "-c", "cat /tmp/before >/etc/resolv.conf")


def test_guard_applies_to_ports_forwarded_by_ssh(world: World) -> None:
    login = world.beside(
        "login", "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "SYS_CHROOT"
    )
    prepare = f"""
    set -e
    ssh-keygen -q -t ed25519 -N '' -f /tmp/key
    ssh-keygen -q -t ed25519 -N '' -f /run/sshd/host_key
    # Do not use the configuration of login nodes, which requires a jail.
    /usr/sbin/sshd -f /dev/null -p {c.SSHD_PORT} -h /run/sshd/host_key \
      -o StrictModes=no -o AuthorizedKeysFile=/tmp/key.pub
    """
    put(login, {f"{c.EXTRAUSERS}/passwd": f"researcher:x:{RESEARCHER}:{RESEARCHER}::/:/bin/sh\n"})
    code, output = run(login, "sh", "-c", prepare)
    assert code == 0, output

    def forward(address: str, port: int) -> str:
        options = ("-p", str(c.SSHD_PORT), "-i", "/tmp/key", "-o", "StrictHostKeyChecking=no")
        return run(login, "ssh", *options, "-W", f"{address}:{port}", "researcher@127.0.0.1")[1]

    assert forward(world.anybody, OPEN).endswith("!")
    assert "Connection refused" in forward(world.api, API)
    assert "Connection refused" in forward(world.metadata, 80)


def test_blocked_addresses_can_still_connect_to_the_pod(world: World) -> None:
    """The kubelet probes sshd from a blocked address of the machine, and must reach the pod."""
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


# --- Failures of the guard -----------------------------------------------------------------------


def test_guard_fails_without_its_capability(world: World) -> None:
    powerless = world.beside("guard")

    code, output = world.run_guard(powerless)

    assert code != 0
    assert "Operation not permitted" in output


def test_other_containers_cannot_remove_the_filter(world: World) -> None:
    other = world.beside("guard", "SYS_ADMIN", "SYS_PTRACE", "SETUID", "DAC_OVERRIDE")

    code, _ = run(other, "nft", "flush", "ruleset")

    assert code != 0
    assert world.ask(RESEARCHER, world.api, API) == REFUSED


def test_guard_waits_until_the_api_name_resolves(world: World, guard: Container) -> None:
    code, output = world.run_guard(guard, "timeout", "8", API_SERVER="kubernetes.invalid")

    assert code == 124
    assert "looking up the address of kubernetes.invalid" in output


def test_guard_fails_if_the_filter_has_no_effect(world: World, guard: Container) -> None:
    # Run the guard as root, whose connections the filter accepts, as if the filter had no effect.
    code, output = world.run_guard(guard, user=0)

    assert code == 1
    assert f"{world.api} still answers" in output
