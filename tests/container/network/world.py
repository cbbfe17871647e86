"""Containers for tests of the guard, which blocks connections of users to some addresses.

One container acts as a pod with a guard. The container `rest` acts as everything outside the pod: a
server at addresses of a cloud, of Kubernetes and of other machines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from docker.models.containers import Container

from components import conventions as c
from components import pods
from components.network import guard
from tests.support import open_shells
from tests.support.containers import Start
from tests.support.stack import settings

DNS, API, OPEN, LISTENED = 53, 443, 8080, (53, 80, 443, 988, 2049, 6443, 8080, 10250, 10255)
RESEARCHER = 2000

SERVE = f"""
import socket, threading

def tcp(server):
    while True:
        accepted, _ = server.accept()
        accepted.sendall(b"!")
        accepted.close()

def udp(server):
    while True:
        _, client = server.recvfrom(1)
        server.sendto(b"!", client)

for port in {LISTENED}:
    server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    threading.Thread(target=tcp, args=[server]).start()
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("", port))
    threading.Thread(target=udp, args=[server]).start()
"""
"""Program that answers on the ports in LISTENED over TCP and UDP."""

ASK = """
import errno, os, socket, sys

how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
kind = socket.SOCK_DGRAM if how == "udp" else socket.SOCK_STREAM
protocol = socket.IPPROTO_MPTCP if how == "mptcp" else 0
with socket.socket(family, kind, protocol) as asking:
    if how == "given":
        os.fchown(asking.fileno(), 0, 0)
    asking.settimeout(10)
    try:
        asking.connect((address, port))
        if how == "udp":
            asking.send(b"?")
        print("answered" if asking.recv(1) else "closed")
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
"""


def run(
    container: Container,
    *command: str,
    user: int | str = 0,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return exit code and output of a command in a container."""
    return open_shells.run(container, command, str(user), environment=environment)


@dataclass(frozen=True)
class World:
    """Containers of a pod, and of the rest of the network."""

    start: Start
    pod: Container
    rest: Container
    metadata: str
    """Address of `rest` in 169.254.0.0/16, the range of a cloud's metadata server."""
    refused6: str
    """IPv6 address of `rest` that the settings block."""
    api: str
    """Address where `rest` acts as the Kubernetes API."""
    anybody: str
    """Address of `rest` that nothing blocks."""

    @cached_property
    def guard_spec(self) -> dict[str, Any]:
        refusing = settings(lambda values: values.update(network={"refuse": [self.refused6]}))
        (spec,) = guard.guard(refusing, pods.Images(None))
        return spec

    def beside(self, image: str, *capabilities: str, **options: Any) -> Container:
        """Start another container of the pod."""
        return self.start(
            image,
            network_mode=f"container:{self.pod.id}",
            cap_drop=["ALL"],
            cap_add=list(capabilities),
            **options,
        )

    def run_guard(
        self, container: Container, *wrapped: str, user: int | None = None, **changed: str
    ) -> tuple[int, str]:
        """Run the guard in a container as the pod does, but with the variables `changed`."""
        variables = {one["name"]: one["value"] for one in self.guard_spec["env"]}
        return run(
            container,
            *(*wrapped, f"{c.PROGRAMS}/guard"),
            user=self.guard_spec["securityContext"]["runAsUser"] if user is None else user,
            environment=variables | changed,
        )

    def ask(self, user: int, address: str, port: int, how: str = "tcp", *wrapped: str) -> str:
        """Connect to an address as a user. Return `answered`, or the name of the error."""
        code, output = run(
            self.pod, *(*wrapped, "python3", "/ask", how, address, str(port)), user=user
        )
        assert code == 0, output
        return output.strip()
