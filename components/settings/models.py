"""The whole configuration of a stack as typed, frozen models.

A stack file `Pulumi.<stack>.yaml` holds one key `slurmstack:<field>` for each field of `Settings`.
`from_config` checks what Pulumi hands to the program, `read_stack` what stands in the file, for
the tools around the program. Both raise `SettingsError`, whose text is one line for the user.
"""

import base64
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from components.conventions import CLUSTER_DOMAIN, PROJECT, RESERVED_NAMES, USER_IDS

STACK_SCHEMA = Path(__file__).with_name("settings.schema.json")

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MEMORY = re.compile(r"(\d+)(Mi|Gi|Ti)B?")
_MIB = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
              "ecdsa-sha2-nistp521", "sk-ssh-ed25519@openssh.com",
              "sk-ecdsa-sha2-nistp256@openssh.com")  # fmt: skip


class SettingsError(Exception):
    """The settings cannot be used; the text names each key, its value and what is expected."""


# --- Domain types: checked once, where they enter ------------------------------------------------


def _dns_label(value: str) -> str:
    if len(value) > 63 or not _DNS_LABEL.fullmatch(value):
        raise PydanticCustomError(
            "dns_label",
            "expected a DNS label: at most 63 lower-case letters, digits and inner hyphens",
        )
    return value


def _domain(value: str) -> str:
    if len(value) > 253 or not all(map(_DNS_LABEL.fullmatch, value.split("."))):
        raise PydanticCustomError("domain", "expected a DNS domain, as in 'cluster.local'")
    return value


def _nodeset_name(value: str) -> str:
    _dns_label(value)
    # `-<ordinal>` is appended to make the node's name, which must be a DNS label as well.
    if len(value) > 56:
        raise PydanticCustomError("nodeset_name", "expected at most 56 characters")
    if not value[0].isalpha():
        raise PydanticCustomError("nodeset_name", "expected a letter first, as in 'cpu'")
    if value in RESERVED_NAMES:
        raise PydanticCustomError(
            "nodeset_name", "is the name of another component; choose another"
        )
    return value


def _user_name(value: str) -> str:
    if not _USER_NAME.fullmatch(value):
        raise PydanticCustomError(
            "user_name",
            "expected a user name: lower-case letters, digits, '_' and '-', a letter first",
        )
    return value


def _memory(value: object) -> int:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise PydanticCustomError(
            "memory", "expected a number with its unit: '512MiB', '16GiB' or '1TiB'"
        )
    return int(match[1]) * _MIB[match[2]]


def parse_ssh_key(value: str) -> str:
    """A public key as it stands in `authorized_keys`, without options, checked and trimmed.

    Raises `ValueError` that says what is wrong.
    """
    kind, _, rest = value.strip().partition(" ")
    blob, _, comment = rest.strip().partition(" ")
    if "PRIVATE KEY" in value:
        raise ValueError("is a private key; give the public one, from the file that ends in .pub")
    if kind not in _KEY_TYPES:
        raise ValueError("expected an OpenSSH public key, as in 'ssh-ed25519 AAAA… comment'")
    try:
        data = base64.b64decode(blob, validate=True)
    except ValueError:
        data = b""
    # RFC 4253, section 6.6: the blob begins with its own type as a length-prefixed string.
    if data[4 : 4 + len(kind)] != kind.encode() or data[:4] != len(kind).to_bytes(4, "big"):
        raise ValueError(f"the part after '{kind}' is not a key of that type; was it cut short?")
    if "\n" in comment:
        raise ValueError("expected one key on one line")
    return f"{kind} {blob} {comment}".strip()


def _ssh_key(value: str) -> str:
    try:
        return parse_ssh_key(value)
    except ValueError as error:
        raise PydanticCustomError("ssh_key", "{reason}", {"reason": str(error)}) from error


DnsLabel = Annotated[str, AfterValidator(_dns_label)]
Domain = Annotated[str, AfterValidator(_domain)]
NodesetName = Annotated[str, AfterValidator(_nodeset_name)]
UserName = Annotated[str, AfterValidator(_user_name)]
SshKey = Annotated[str, AfterValidator(_ssh_key)]
MemoryMiB = Annotated[
    int,
    BeforeValidator(_memory),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEMORY.pattern}$", "examples": ["16GiB"]}),
]
Port = Annotated[int, Field(ge=1, le=65535)]
NodePort = Annotated[int, Field(ge=30000, le=32767)]
Seconds = Annotated[int, Field(ge=0, le=7 * 24 * 3600)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _duplicates(values: Iterator[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


# --- The models ----------------------------------------------------------------------------------


class LocalCluster(_Model):
    """A Kubernetes cluster of containers on this machine, started by `make up`."""

    kind: Literal["local"]
    nodes: Annotated[int, Field(ge=1, le=9)] = 2
    """Kubernetes nodes; the first one carries the control plane too."""
    api_port: Port = 16443
    """Loopback port of the Kubernetes API."""
    ssh_port: Port = 12222
    """Loopback port that leads to the login node's sshd."""
    domain: ClassVar[str] = CLUSTER_DOMAIN


class ExistingCluster(_Model):
    """A Kubernetes cluster that is there already, found through a kubeconfig."""

    kind: Literal["existing"]
    kubeconfig: str | None = None
    """Path of the kubeconfig; by default what kubectl would take."""
    context: str | None = None
    """Context in the kubeconfig; by default its current one."""
    domain: Domain = CLUSTER_DOMAIN
    """Domain of the cluster's own DNS."""


Cluster = Annotated[LocalCluster | ExistingCluster, Field(discriminator="kind")]


class Jail(_Model):
    """The shared root file system of login and workers."""

    size: MemoryMiB = Field("100GiB", validate_default=True)
    """Size of the volume, as '100GiB'."""
    storage_class: str | None = None
    """A class that offers ReadWriteMany; by default the cluster's default class."""
    refresh: Annotated[int, Field(ge=0)] = 0
    """Raise it by one to unpack the jail image again over the jail; users' files stay."""


class Controller(_Model):
    """slurmctld and its state."""

    state_size: MemoryMiB = Field("10GiB", validate_default=True)
    """Size of the volume for the queue and the nodes' state."""
    storage_class: str | None = None
    """Class of that volume (ReadWriteOnce); by default the cluster's default class."""


class Nodeset(_Model):
    """Workers of one kind: nodes `<name>-0`, `<name>-1`, …"""

    name: NodesetName
    """First part of the node names, and a feature that all its nodes carry."""
    replicas: Annotated[int, Field(ge=0, le=10_000)]
    """Number of nodes."""
    cpus: Annotated[int, Field(ge=1, le=4096)]
    """CPUs of a node, which its pod may use at most."""
    cpu_request: Annotated[float, Field(gt=0)] | None = None
    """CPUs that a pod reserves in Kubernetes; by default all of them. Less lets nodes share a
    machine, for development."""
    memory: MemoryMiB
    """Memory of a node's pod, as '16GiB'; Slurm offers it less a headroom for its own daemons."""
    features: tuple[DnsLabel, ...] = ()
    """Further features for `sbatch --constraint`."""
    drain_grace: Seconds = 3600
    """How long a node that leaves lets its jobs go on, in seconds; then they are requeued."""
    node_selector: dict[str, str] = {}
    """Labels of the Kubernetes nodes that its pods may run on."""

    @model_validator(mode="after")
    def _request_fits_size(self) -> Self:
        if self.cpu_request is not None and self.cpu_request > self.cpus:
            raise PydanticCustomError(
                "cpu_request",
                "cpu_request is {request}: expected at most cpus, which is {cpus}",
                {"request": self.cpu_request, "cpus": self.cpus},
            )
        return self


class Partition(_Model):
    """A queue over some nodesets."""

    name: DnsLabel
    nodesets: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of the nodesets that serve it."""
    default: bool = False
    """Whether jobs go here that name no partition."""


class Login(_Model):
    """Where users log in by SSH."""

    service: Literal["NodePort", "LoadBalancer", "ClusterIP"] = "LoadBalancer"
    node_port: NodePort | None = None
    """Port on every Kubernetes node, for service NodePort."""


class User(_Model):
    """A person with the same name and id on login, workers and controller."""

    name: UserName
    uid: Annotated[int, Field(ge=USER_IDS.start, lt=USER_IDS.stop)]
    """User id, and the id of the user's own group."""
    ssh_keys: tuple[SshKey, ...] = ()
    """Public keys that log in."""
    ssh_key_files: tuple[str, ...] = ()
    """Files with one public key each, relative to the project; read at deploy time."""
    shell: str = "/bin/bash"


class Settings(_Model):
    """Everything that a stack file says."""

    cluster_name: DnsLabel
    """Name of the Slurm cluster."""
    cluster: Cluster
    """The Kubernetes cluster underneath."""
    namespace: DnsLabel = "slurm"
    """Kubernetes namespace of the Slurm layer."""
    registry: str | None = None
    """Registry that images are pushed to and pulled from; else local nodes get them loaded."""
    protect_data: bool = True
    """Refuse every deploy that would delete the jail or the controller's state."""
    jail: Jail = Field(default_factory=Jail)
    controller: Controller = Field(default_factory=Controller)
    nodesets: tuple[Nodeset, ...] = ()
    partitions: tuple[Partition, ...] = ()
    """By default one partition, `main`, over all nodesets."""
    login: Login = Field(default_factory=Login)
    users: tuple[User, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        named: dict[str, Iterator[str]] = {
            "nodesets": (nodeset.name for nodeset in self.nodesets),
            "partitions": (partition.name for partition in self.partitions),
            "users": (user.name for user in self.users),
        }
        for field, names in named.items():
            for name in _duplicates(names):
                raise _cross_field(field, f"two are named '{name}'; give each a name of its own")
        for uid in _duplicates(str(user.uid) for user in self.users):
            raise _cross_field("users", f"two have the uid {uid}; give each an id of its own")
        return self

    @model_validator(mode="after")
    def _partitions_fit_nodesets(self) -> Self:
        known = {nodeset.name for nodeset in self.nodesets}
        for index, partition in enumerate(self.partitions):
            for name in partition.nodesets:
                if name not in known:
                    raise _cross_field(
                        f"partitions[{index}].nodesets",
                        f"'{name}' is no nodeset; {_known(name, known)}",
                    )
        defaults = [partition.name for partition in self.partitions if partition.default]
        if len(defaults) > 1:
            raise _cross_field(
                "partitions", f"{' and '.join(defaults)} are all the default; keep one"
            )
        return self

    @model_validator(mode="after")
    def _login_fits_cluster(self) -> Self:
        if self.login.node_port is not None and self.login.service != "NodePort":
            raise _cross_field("login.node_port", "is of use only with login.service NodePort")
        if isinstance(self.cluster, LocalCluster):
            if self.login.service != "NodePort" or self.login.node_port is None:
                raise _cross_field(
                    "login", "a local cluster needs service: NodePort and a node_port (30000-32767)"
                )
            if self.cluster.api_port == self.cluster.ssh_port:
                raise _cross_field("cluster", "api_port and ssh_port must differ")
        return self

    def queues(self) -> tuple[Partition, ...]:
        """The partitions, with the default for settings that name none."""
        if self.partitions or not self.nodesets:
            return self.partitions
        everything = tuple(nodeset.name for nodeset in self.nodesets)
        return (Partition(name="main", nodesets=everything, default=True),)


# --- Reading -------------------------------------------------------------------------------------


def from_config(config: Mapping[str, str]) -> Settings:
    """Settings from Pulumi's configuration: full keys, objects as JSON text.

    Keys of other namespaces (`kubernetes:…`) are not ours to judge. Raises `SettingsError`.
    """
    values = {key: _decode(value) for key, value in config.items()}
    return _validate(values, "the stack's configuration")


def read_stack(stack: str, root: Path) -> Settings:
    """Settings from `Pulumi.<stack>.yaml` below `root`. Raises `SettingsError`."""
    path = root / f"Pulumi.{stack}.yaml"
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(
            f"no stack '{stack}': {path.name} is not there; "
            f"stacks here: {', '.join(_stacks(root)) or 'none'}"
        ) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise SettingsError(f"{path.name}: expected a mapping 'config' of slurmstack:… keys")
    return _validate(config, path.name)


def _stacks(root: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))


def _decode(value: str) -> Any:
    """Pulumi hands scalars as their text and everything else as JSON."""
    return json.loads(value) if value[:1] in ("{", "[") else value


def _validate(config: Mapping[str, Any], source: str) -> Settings:
    prefix = f"{PROJECT}:"
    values = {
        key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem(details) for details in error.errors())
        raise SettingsError(f"{source}: {problems}") from None


# --- Errors for people ---------------------------------------------------------------------------


def _cross_field(key: str, message: str) -> PydanticCustomError:
    return PydanticCustomError("cross_field", "{key}: {message}", {"key": key, "message": message})


def _problem(details: ErrorDetails) -> str:
    """One problem as `key: value: what is expected`."""
    if details["type"] == "cross_field":
        return f"{PROJECT}:{details['msg']}"
    path = [part for part in details["loc"] if part not in _CLUSTER_KINDS]
    key = f"{PROJECT}:" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    ).lstrip(".")
    match details["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key; {_known(str(path[-1]), _fields_at(path[:-1]))}"
        case "missing":
            return f"{key}: is required; add it"
        case "union_tag_not_found" | "union_tag_invalid":
            return f"{key}.kind: expected one of {', '.join(sorted(_CLUSTER_KINDS))}"
        case _:
            message = details["msg"].removeprefix("Input should be ")
            expected = message if message != details["msg"] else None
            value = json.dumps(details["input"], default=str, ensure_ascii=False)
            shown = value if len(value) <= 60 else f"{value[:57]}…"
            return f"{key}: {shown}: " + (f"expected {expected}" if expected else details["msg"])


def _known(name: str, known: Iterator[str] | set[str] | list[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names) or 'none'}"


def _fields_at(path: list[str | int]) -> list[str]:
    """Names of the fields that are allowed at a place in the settings."""
    models: list[type[BaseModel]] = [Settings]
    for part in path:
        if isinstance(part, str):
            models = [
                inner
                for model in models
                if part in model.model_fields
                for inner in _models_in(model.model_fields[part].annotation)
            ]
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


_CLUSTER_KINDS = frozenset({"local", "existing"})


# --- JSON Schema of a stack file, for editors ----------------------------------------------------


def stack_schema() -> dict[str, Any]:
    """JSON Schema of `Pulumi.<stack>.yaml`; committed as `STACK_SCHEMA`, which a test checks."""
    schema = Settings.model_json_schema()
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "slurmstack stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [f"{PROJECT}:{name}" for name in schema["required"]],
                "properties": {
                    f"{PROJECT}:{name}": value for name, value in schema["properties"].items()
                },
                # Other namespaces, such as kubernetes:…, belong to other packages.
                "patternProperties": {f"^(?!{PROJECT}:)": True},
                "additionalProperties": False,
            }
        },
        "$defs": definitions,
    }


if __name__ == "__main__":
    STACK_SCHEMA.write_text(json.dumps(stack_schema(), indent=2, sort_keys=True) + "\n")
