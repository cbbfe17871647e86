"""Where users log in, and what they may do there."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from components.settings.types import (
    Cidr,
    MemoryMiB,
    Model,
    NodePort,
    Number,
    Seconds,
    Text,
    cross_field,
)

_LEAST_MEMORY = 64
"""MiB that two of sshd's processes, a shell and its tools cannot do without."""


class Forwarding(Model):
    """What SSH carries beside terminals and files."""

    tcp: bool = True
    """Ports and sockets, as by `ssh -L`, `-R`, `-D` and `-J`."""
    agent: bool = True
    """The agent that holds the user's keys, as by `ssh -A`."""
    x11: bool = True
    """Windows of graphical programs, as by `ssh -X`."""


class Limits(Model):
    """What all processes of one user on one login node may use together."""

    cpus: Annotated[float, Field(ge=0.1, le=4096), Number] | None = None
    """CPUs; by default what others leave."""
    memory: MemoryMiB | None = None
    """Memory, as '16GiB'; by default what the node has."""
    processes: Annotated[int, Field(ge=16, le=4_194_304), Number] | None = None
    """Processes and threads, two of sshd for each session included; by default what the pod may."""

    @field_validator("memory")
    @classmethod
    def _is_enough_for_a_session(cls, value: int | None) -> int | None:
        if value is not None and value < _LEAST_MEMORY:
            raise PydanticCustomError(
                "least_memory", "expected at least {least}MiB", {"least": _LEAST_MEMORY}
            )
        return value


class Motd(Model):
    """What a user is told who logs in (the message of the day)."""

    text: Text | None = None
    """Lines of the operator's own."""
    state: bool = True
    """How many nodes are idle, and how many of the user's jobs run and wait."""


class Login(Model):
    """Where users log in by SSH: the login nodes `login-0`, `login-1`, …"""

    replicas: Annotated[int, Field(ge=1, le=64), Number] = 1
    """Number of login nodes; all have one host key."""
    service: Literal["NodePort", "LoadBalancer", "ClusterIP"] = "LoadBalancer"
    node_port: NodePort | None = None
    """Port on every Kubernetes node, for service NodePort."""
    source_ranges: tuple[Cidr, ...] = ()
    """Networks that clients may come from, for service LoadBalancer; by default all."""
    home_keys: bool = True
    """Whether keys log in that users put into their own ~/.ssh/authorized_keys."""
    ssh_to_nodes: bool = True
    """Whether `ssh <node>` leads users into the job that they have there."""
    drain_grace: Seconds = 30
    """How long a login node that goes lets its sessions go on, in seconds."""
    forwarding: Forwarding = Field(default_factory=Forwarding)
    limits: Limits = Field(default_factory=Limits)
    motd: Motd = Field(default_factory=Motd)

    @model_validator(mode="after")
    def _fits_service(self) -> Self:
        if self.node_port is not None and self.service != "NodePort":
            raise cross_field(
                "node_port",
                f"{self.node_port}: counts only with service: NodePort; set that, "
                "or leave this out",
            )
        if self.source_ranges and self.service != "LoadBalancer":
            raise cross_field(
                "source_ranges",
                f"{', '.join(self.source_ranges)}: counts only with service: LoadBalancer; "
                "set that, or leave this out",
            )
        return self
