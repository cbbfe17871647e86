"""Settings of login nodes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.types import (
    Cidr,
    MemoryMiB,
    Model,
    NodePort,
    Number,
    Seconds,
    Text,
    at_least,
    cross_field,
)

_LEAST_MEMORY = 64
"""Smallest memory limit, in MiB: two sshd processes, a shell and its tools need this much."""


class Forwarding(Model):
    """SSH forwarding, in addition to terminals and file transfers."""

    tcp: bool = True
    """Forward ports and sockets: `ssh -L`, `-R`, `-D` and `-J`."""
    agent: bool = True
    """Forward the user's SSH agent: `ssh -A`."""
    x11: bool = True
    """Forward graphical windows: `ssh -X`."""


class Limits(Model):
    """Limits of each user on each login node, for all of the user's processes together."""

    cpus: Annotated[float, Field(ge=0.1, le=4096), Number] | None = None
    """CPUs; by default all CPUs that other users do not use."""
    memory: Annotated[MemoryMiB, at_least(_LEAST_MEMORY)] | None = None
    """Memory, such as '16GiB'; by default all of the node's memory."""
    processes: Annotated[int, Field(ge=16, le=4_194_304), Number] | None = None
    """Processes and threads, including two of sshd for each session; by default the pod's limit."""


class Motd(Model):
    """Message at login on a terminal (message of the day)."""

    text: Text | None = None
    state: bool = True
    """Add the numbers of idle nodes, and of the user's running and pending jobs."""


class Login(Model):
    """Login nodes `login-0`, `login-1`, …, which users reach by SSH."""

    replicas: Annotated[int, Field(ge=1, le=64), Number] = 1
    """Number of login nodes; all have the same host key."""
    service: Literal["NodePort", "LoadBalancer", "ClusterIP"] = "LoadBalancer"
    node_port: NodePort | None = None
    """Port on every Kubernetes node, with `service: NodePort`."""
    source_ranges: tuple[Cidr, ...] = ()
    """Networks that clients may connect from, with `service: LoadBalancer`; by default all."""
    home_keys: bool = True
    """Accept keys in users' own ~/.ssh/authorized_keys, in addition to those of `users`."""
    ssh_to_nodes: bool = True
    """Let `ssh <node>` enter the user's job on that node."""
    drain_grace: Seconds = 30
    """Seconds that sessions may continue on a login node that is being removed."""
    forwarding: Forwarding = Field(default_factory=Forwarding)
    limits: Limits = Field(default_factory=Limits)
    motd: Motd = Field(default_factory=Motd)

    @model_validator(mode="after")
    def _fits_service(self) -> Self:
        if self.node_port is not None and self.service != "NodePort":
            raise cross_field(
                "node_port",
                f"{self.node_port}: has no effect, because login.service is not 'NodePort'; set "
                "login.service to 'NodePort', or remove login.node_port",
            )
        if self.source_ranges and self.service != "LoadBalancer":
            raise cross_field(
                "source_ranges",
                f"{', '.join(self.source_ranges)}: has no effect, because login.service is not "
                "'LoadBalancer'; set login.service to 'LoadBalancer', or remove "
                "login.source_ranges",
            )
        return self
