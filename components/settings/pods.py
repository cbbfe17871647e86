"""Additional settings of a nodeset's pods."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from components.conventions import DOMAIN
from components.settings.types import (
    DnsLabel,
    ImageReference,
    LabelKey,
    MemoryMiB,
    Model,
    Number,
    ResourceName,
    VariableName,
    cross_field,
    duplicates,
    parse_memory,
)

_OURS: Final[Mapping[str, str]] = {
    "DRAIN_GRACE": "use drain_grace",
    "LIMITS": "use limits",
    "MACHINE": "remove it: the stack sets it to the name of the pod's machine",
    "NODE_CONF": "remove it, and use the nodeset's settings 'cpus', 'memory' and 'gpus'",
    "NODE_NAME": "remove it: the stack sets it to the pod's name",
    "NODE_SHAPE": "use cpus, sockets, threads_per_core and gpus",
    "POD_IP": "remove it: the stack sets it to the pod's address",
}
"""Variables that users must not set, because the stack sets them in slurmd's container. For each
variable: what the user should do instead."""
_PREFIXES: Final = ("BASH", "HWLOC_", "JAIL_", "LD_", "PATH", "PYTHON", "SLURM")
"""Prefixes of variables that would change what slurmd does as root."""
_CAP: Final = "CAP_"
"""Prefix of capabilities in Linux. Names in pods lack this prefix: container runtimes add it."""
_WORDS: Final = ("unlimited", "none")


def _variable(value: str) -> str:
    if value in _OURS:
        raise PydanticCustomError("variable", "is reserved; {instead}", {"instead": _OURS[value]})
    if value.startswith(_PREFIXES):
        raise PydanticCustomError(
            "variable",
            "this variable would change slurmd, which runs as root; remove it here, and set "
            "it in the jobs",
        )
    return value


def _hugepages(value: str) -> str:
    if not re.fullmatch(r"hugepages-[1-9]\d*[KMG]i", value):
        raise PydanticCustomError("hugepages", "expected a page size, such as 'hugepages-2Mi'")
    return value


def _not_ours(value: str) -> str:
    if value.partition("/")[0] == DOMAIN:
        raise PydanticCustomError(
            "annotation", "has a prefix that is reserved for the stack; choose another prefix"
        )
    return value


def _capability(value: str) -> str:
    if value.startswith(_CAP):
        raise PydanticCustomError(
            "capability",
            "expected a name without CAP_, as in Kubernetes: '{name}'",
            {"name": value.removeprefix(_CAP)},
        )
    if not re.fullmatch(r"[A-Z][A-Z_]{2,30}", value):
        raise PydanticCustomError("capability", "expected a capability, such as 'NET_ADMIN'")
    return value


Variable = Annotated[VariableName, AfterValidator(_variable)]
Hugepages = Annotated[str, AfterValidator(_hugepages)]
Capability = Annotated[str, AfterValidator(_capability)]
Text = Annotated[str, StringConstraints(max_length=4096)]


class InitContainer(Model):
    """A container that runs once in a pod, before slurmd and slurmd's sidecars."""

    name: DnsLabel
    """Name of the container; unique in the pod."""
    image: ImageReference
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Program with arguments."""
    environment: dict[Variable, Text] = {}
    user: Annotated[int, Field(ge=0, le=2**31 - 1), Number] = 65534
    """Uid that the container runs as; the default is unprivileged."""
    capabilities: tuple[Capability, ...] = ()
    """Capabilities of the container, such as `SYS_ADMIN`; by default none."""


class Pod(Model):
    """Further fields of a nodeset's pods. The policy pack checks them like all other fields."""

    image: ImageReference | None = None
    """Image of slurmd's container, based on the stack's image."""
    resources: dict[ResourceName, Annotated[int, Field(ge=1), Number]] = {}
    """Resources of a device plugin for slurmd's container, such as `rdma/hca: 1`."""
    hugepages: dict[Hugepages, MemoryMiB] = {}
    """Amount of huge pages of each page size, such as `hugepages-2Mi: 4GiB`."""
    environment: dict[Variable, Text] = {}
    """Environment variables of slurmd; jobs do not get them."""
    annotations: dict[Annotated[LabelKey, AfterValidator(_not_ours)], Text] = {}
    """Annotations of the pods, for example to attach networks."""
    init_containers: tuple[InitContainer, ...] = ()
    """Containers that run once, in this order, after `network.guard` and before all others."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for name in duplicates(container.name for container in self.init_containers):
            raise cross_field(
                "init_containers", f"two containers are named '{name}'; give each a unique name"
            )
        return self


def is_rdma(resource: str) -> bool:
    """Return whether a resource is an RDMA device, which requires that jobs can lock memory.

    Device plugins use the names `rdma/…`, `…/infiniband…` and `vpc.amazonaws.com/efa`.
    """
    return any(word in resource for word in ("rdma", "infiniband", "amazonaws.com/efa"))


def _size(value: object) -> int | str:
    if value in _WORDS:
        return str(value)
    try:
        return parse_memory(value)
    except PydanticCustomError:
        raise PydanticCustomError(
            "size", "expected a size with its unit, such as '512MiB', or 'unlimited', or 'none'"
        ) from None


Size = Annotated[
    int | str,
    BeforeValidator(_size),
    WithJsonSchema({"type": "string", "examples": ["512MiB", *_WORDS]}),
]
"""A size in MiB, 'unlimited' or 'none'."""


class ProcessLimits(Model):
    """Limits of each process on a node (setrlimit(2)). The container runtime sets the defaults."""

    core: Size | None = None
    """Size limit of a core file."""
    open_files: Annotated[int, Field(ge=1024, le=2**30), Number] | None = None
    """Number of files that a process may have open."""
    locked_memory: Size | None = None
    """Memory that a process may lock; RDMA requires this. By default unlimited if the pods have
    RDMA devices."""
