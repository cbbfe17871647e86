"""Types of values in the settings, such as a cron schedule or a size.

Each type checks its values when the settings are read.
"""

import base64
import calendar
import difflib
import ipaddress
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from agents.hostlist import expand
from components.conventions import RESERVED_NAMES

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MEMORY = re.compile(r"(\d{1,7})(Mi|Gi|Ti)B?", re.ASCII)
_MIB = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_PURGE_AGE = re.compile(r"[1-9][0-9]{0,3}(hours|days|months)")
_CRON = {
    "minute": range(60),
    "hour": range(24),
    "day of the month": range(1, 32),
    "month": range(1, 13),
    "day of the week": range(7),
}
"""Ranges of cron's fields in Kubernetes."""
_LONGEST = {month: calendar.monthrange(2024, month)[1] for month in range(1, 13)}
"""Number of days of each month, with 29 days in February."""
_CRON_PART = re.compile(r"(\*|(?P<first>\d{1,2})(-(?P<last>\d{1,2}))?)(/[1-9]\d?)?", re.ASCII)
_DUMP = re.compile(r"latest|[0-9a-f]{8,64}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_ENDPOINT = re.compile(
    r"(?P<scheme>https?)://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:(?P<port>[0-9]{1,5}))?"
)
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9./:@_-]*")
_RESOURCES = re.compile(r"[A-Za-z0-9/:._*-]+")
_CHART_VERSION = re.compile(r"v?\d{1,5}(\.\d{1,5}){2}(-[0-9A-Za-z.-]+)?", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,14}[A-Za-z0-9_.+-]")
_DNS_PATTERN = re.compile(
    r"(?!.*\*\*)(?![0-9.]+$)[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?(\.[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?)+"
)
_URL_PATH = re.compile(r"[A-Za-z0-9/_.~%?&=+:,-]*")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*")
_LDAP_URI = re.compile(r"ldaps?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:(?P<port>[0-9]{1,5}))?")
_RDN = r" *([A-Za-z][A-Za-z0-9-]*|\d+(\.\d+)*) *= *(\\.|[^,\\?])+"
_DN = re.compile(rf"{_RDN}(,{_RDN})*")
"""A distinguished name (RFC 4514)."""
_PATH = re.compile(r"(/[A-Za-z0-9_.@-]+)+")
_MOUNT_OPTION = re.compile(r"[A-Za-z0-9_]+(=[A-Za-z0-9_.:/-]+)?")
_GPU_TYPE = re.compile(r"[a-z][a-z0-9_.-]*")
_DEVICE = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_.*-]*")
_KUBERNETES = re.compile(r"1\.[3-9]\d", re.ASCII)
_RELEASE = re.compile(r"1\.(3[1-9]|[4-9]\d)\.\d{1,3}", re.ASCII)
_PLATFORM = re.compile(r"(cpu|gpu)(-[a-z0-9]+)+")
_NEBIUS_PROJECT = re.compile(r"project-[a-z0-9]+")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
_PRESET = re.compile(r"(\d{1,2}gpu-)?\d{1,4}vcpu-\d{1,5}gb")
_INSTANCE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
# Amazon's instance families with ARM CPUs have a 'g' after the generation. Exceptions are the first
# family, a1, and the families with Grace CPUs (source: EC2, instance type naming conventions).
_ARM_INSTANCE = re.compile(r"(a1|[a-z]+\d+[a-z]*g[a-z]*|p\d+[a-z]*-gb\d+)\..+")
_SECRET_ENTRY = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_MIG_PROFILE = re.compile(r"[1-9]g\.\d+gb(\.me)?")
_COLONS_OF_IPV6 = 3
_KEY_TYPES = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
              "ecdsa-sha2-nistp521", "sk-ssh-ed25519@openssh.com",
              "sk-ecdsa-sha2-nistp256@openssh.com")  # fmt: skip
_LENGTH = 4
"""A key's binary data (blob) consists of fields. This many bytes before each field contain its
length (source: RFC 4251, section 5)."""


class Model(BaseModel):
    """Base of all models: frozen, and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def cross_field(key: str, message: str) -> PydanticCustomError:
    """Return the error for a broken rule between fields; `key` is relative to the current model."""
    return PydanticCustomError("cross_field", "{message}", {"key": key, "message": message})


def duplicates(values: Iterable[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def in_cycle(next_of: Mapping[str, Iterable[str]]) -> str | None:
    """Return the first name that refers to itself, directly or through other names, or None."""
    for name in sorted(next_of):
        reached: set[str] = set()
        waiting = list(next_of[name])
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting.extend(next_of.get(at, ()))
        if name in reached:
            return name
    return None


def known_names(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar known name, or all of them."""
    names = sorted(known)
    if close := closest_name(name, names):
        return f"did you mean '{close}'?"
    return f"known: {', '.join(names) or 'none'}"


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None; ignore case and underscores.

    Users may write a name as Slurm does: `MaxTRESPerUser` for `max_tres_per_user`.
    """
    names = {_plain(one): one for one in known}
    close = difflib.get_close_matches(_plain(name), names, n=1, cutoff=0.62)
    return names[close[0]] if close else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def matches(pattern: re.Pattern[str], kind: str, expected: str) -> AfterValidator:
    """Return a validator that matches the whole text. Its error says what is `expected`."""

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise PydanticCustomError(kind, "expected {expected}", {"expected": expected})
        return value

    return AfterValidator(check)


# --- Names ---------------------------------------------------------------------------------------


def _dns_label(value: str) -> str:
    if len(value) > 63 or not _DNS_LABEL.fullmatch(value):
        raise PydanticCustomError(
            "dns_label",
            "expected a DNS label: at most 63 characters, only a-z, 0-9 and '-', and "
            "neither the first nor the last is '-'",
        )
    return value


def _domain(value: str) -> str:
    if not _is_domain(value):
        raise PydanticCustomError("domain", "expected a DNS domain, such as 'cluster.local'")
    return value


def _is_domain(value: str) -> bool:
    return len(value) <= 253 and all(map(_DNS_LABEL.fullmatch, value.split(".")))


def _object_name(value: str) -> str:
    if not _is_domain(value):
        raise PydanticCustomError(
            "object_name",
            "expected a Kubernetes name: only a-z, 0-9, '-' and '.', and each part "
            "between dots begins and ends with a letter or digit",
        )
    return value


def _secret_name(value: object) -> str:
    if not isinstance(value, str) or not _is_domain(value):
        # Hide the value: it may be the credential itself.
        raise PydanticCustomError(
            "secret",
            "expected the name of a Secret: only a-z, 0-9, '-' and '.', and each part "
            "between dots begins and ends with a letter or digit; put the credential "
            "itself, encrypted, in the setting 'secrets'",
        )
    return value


def _host(value: str) -> str:
    if not _is_domain(value):
        bare = value.partition("://")[2] or value
        bare = bare.partition("/")[0].partition(":")[0]
        is_clear = value.count(":") < _COLONS_OF_IPV6 and _is_domain(bare)
        raise PydanticCustomError(
            # The kind "secret" hides the value, because a URL may contain a password.
            "secret" if "@" in value else "host",
            "expected a host name or IPv4 address, without scheme, port and path{hint}",
            {"hint": f"; did you mean '{bare}'?" if is_clear and "@" not in value else ""},
        )
    return value


def _dn(value: str) -> str:
    if not _DN.fullmatch(value):
        guess = ",".join(f"dc={part}" for part in value.split("."))
        raise PydanticCustomError(
            "dn",
            "expected a distinguished name, such as 'dc=example,dc=org'{hint}",
            {"hint": f"; did you mean '{guess}'?" if _is_domain(value) else ""},
        )
    return value


def _nodeset_name(value: str) -> str:
    _dns_label(value)
    # A node's name is this name followed by `-<ordinal>`; it must be a DNS label too.
    if len(value) > 56:
        raise PydanticCustomError("nodeset_name", "expected at most 56 characters")
    if not value[0].isalpha():
        raise PydanticCustomError("nodeset_name", "expected a name that begins with a letter")
    # In a partition, `Nodes=ALL` or `Nodes=all` means all nodes, so it cannot mean a nodeset
    # (source: slurm.conf(5), Nodes).
    if value == "all":
        raise PydanticCustomError(
            "nodeset_name", "is Slurm's word for all nodes; choose another name"
        )
    if value in RESERVED_NAMES:
        raise PydanticCustomError(
            "nodeset_name", "is reserved for another component; choose another name"
        )
    return value


def _label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    if slash:
        _domain(prefix)
    if not _LABEL_NAME.fullmatch(name):
        raise PydanticCustomError(
            "label_key", "expected a Kubernetes key, such as 'pool' or 'example.org/pool'"
        )
    return value


def _label_value(value: str) -> str:
    if not _LABEL_NAME.fullmatch(value):
        raise PydanticCustomError(
            "label_value",
            "expected a label value: at most 63 letters, digits, '_', '.' and '-', and "
            "the first and the last are letters or digits",
        )
    return value


def _ldap_uri(value: str) -> str:
    match = _LDAP_URI.fullmatch(value)
    if match is None or not 1 <= int(match["port"] or 1) <= 65535:
        raise PydanticCustomError(
            "ldap_uri",
            "expected a server URL, such as 'ldaps://ldap.example.org' or "
            "'ldaps://ldap.example.org:636'",
        )
    return value


def _endpoint(value: str) -> str:
    match = _ENDPOINT.fullmatch(value)
    if match is None or not 1 <= int(match["port"] or 1) <= 65535:
        raise PydanticCustomError(
            "endpoint",
            "expected a server URL, such as 'https://s3.example.org' or "
            "'https://s3.example.org:9000'",
        )
    return value


def _url(value: str) -> str:
    scheme, _, rest = value.partition("://")
    server, _, path = rest.partition("/")
    try:
        _endpoint(f"{scheme}://{server}")
    except PydanticCustomError:
        path = "#"
    if not _URL_PATH.fullmatch(path):
        raise PydanticCustomError(
            "url", "expected an http or https URL, such as 'https://hooks.example.org/1'"
        )
    return value


def _secret(value: object) -> SecretStr:
    """Accept text, or a value that is encrypted in a stack file. Errors hide the value."""
    if isinstance(value, dict) and list(value) == ["secure"]:
        return SecretStr("")
    if isinstance(value, str) and value:
        return SecretStr(value)
    raise PydanticCustomError("secret", "expected text that is not empty")


def _secret_url(value: object) -> SecretStr:
    secret = _secret(value)
    if secret:
        try:
            _url(secret.get_secret_value())
        except PydanticCustomError as error:
            raise PydanticCustomError("secret", error.message_template) from None
    return secret


def endpoint_port(endpoint: str) -> int:
    """Return the TCP port of an `Endpoint` or `Url`."""
    scheme, _, rest = endpoint.partition("://")
    server = rest.partition("/")[0]
    return int(server.partition(":")[2] or {"http": 80, "https": 443}[scheme])


def endpoint_host(endpoint: str) -> str:
    """Return the name or address in an `Endpoint` or `Url`."""
    return endpoint.partition("://")[2].partition("/")[0].partition(":")[0].lower()


def _resource_name(value: str) -> str:
    if "/" not in value:
        raise PydanticCustomError(
            "resource_name", "expected a Kubernetes resource, such as 'nvidia.com/gpu'"
        )
    return _label_key(value)


DnsLabel = Annotated[str, AfterValidator(_dns_label)]
Domain = Annotated[str, AfterValidator(_domain)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
"""Name of an object of Kubernetes."""
StorageClassName = Annotated[str, AfterValidator(lambda value: value and _object_name(value))]
"""Name of a StorageClass; "" means no class, for volumes that an administrator creates."""
SecretName = Annotated[str, BeforeValidator(_secret_name)]
"""Name of a Secret. Errors hide the value, because people write credentials there by mistake."""
Host = Annotated[str, AfterValidator(_host)]
NodesetName = Annotated[str, AfterValidator(_nodeset_name)]
UserName = Annotated[
    str,
    matches(
        _USER_NAME,
        "user_name",
        "a user name: at most 32 characters, only a-z, 0-9, '_' and '-', and the first is a "
        "letter or '_'",
    ),
]
Registry = Annotated[
    str,
    matches(_REGISTRY, "registry", "a host and a path, such as 'registry.example.org:5000/hpc'"),
]
ImageReference = Annotated[
    str, matches(_IMAGE, "image", "an image name, such as 'docker.io/grafana/grafana:11.6.0'")
]
VariableName = Annotated[
    str, matches(_VARIABLE, "variable", "a variable name, such as 'NCCL_DEBUG'")
]
ResourcePattern = Annotated[
    str,
    matches(_RESOURCES, "resources", "a resource name, such as 'login-sshd' or 'nodeset-*'"),
]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Url = Annotated[str, AfterValidator(_url)]
_ENCRYPTED: dict[str, Any] = {
    "type": "object",
    "properties": {"secure": {"type": "string"}},
    "required": ["secure"],
    "additionalProperties": False,
}
SecretText = Annotated[SecretStr, BeforeValidator(_secret), WithJsonSchema(_ENCRYPTED)]
"""A credential. It must be encrypted in the stack file."""
SecretUrl = Annotated[
    SecretStr,
    BeforeValidator(_secret_url),
    WithJsonSchema({"anyOf": [{"type": "string"}, _ENCRYPTED]}),
]
"""A URL that may contain a token. It may be encrypted in the stack file."""
SecretEntry = Annotated[
    str,
    matches(
        _SECRET_ENTRY,
        "secret_entry",
        "a Secret's key: at most 253 letters, digits, '-', '_' and '.'",
    ),
]
Bucket = Annotated[
    str,
    matches(
        _BUCKET,
        "bucket",
        "a bucket name: 3 to 63 characters, only a-z, 0-9, '.' and '-', and the first and "
        "the last are letters or digits",
    ),
]
ObjectPrefix = Annotated[
    str, matches(_PREFIX, "object_prefix", "names separated by '/', such as 'hpc/slurm'")
]
DumpName = Annotated[
    str,
    matches(
        _DUMP,
        "dump_name",
        "'latest', or the name of a dump: 8 to 64 digits and letters a-f, such as '1f2e3d4c'",
    ),
]
ChartVersion = Annotated[
    str, matches(_CHART_VERSION, "chart_version", "a full chart version, such as '1.19.6'")
]
InterfaceName = Annotated[
    str,
    matches(
        _INTERFACE,
        "interface",
        "a network interface, such as 'eth0', or a prefix with '+', such as 'eth+'",
    ),
]
DnsPattern = Annotated[
    str, matches(_DNS_PATTERN, "dns_pattern", "a DNS name, such as 'pypi.org' or '*.pypi.org'")
]
"""A name or a pattern; `*` matches any text without a dot."""
LdapUri = Annotated[str, AfterValidator(_ldap_uri)]
Word = Annotated[
    str,
    matches(
        _WORD,
        "word",
        "one word: a letter, digit or '_', then letters, digits, '_', '.', '@' or '-'",
    ),
]
"""Name of an object in Slurm: an account, a QOS, a switch."""
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
SelectedValue = Annotated[str, AfterValidator(lambda value: value and _label_value(value))]
"""Value of a label, which may be empty."""
ResourceName = Annotated[str, AfterValidator(_resource_name)]
GpuType = Annotated[
    str,
    matches(
        _GPU_TYPE,
        "gpu_type",
        "a GPU type: a lower-case letter, then lower-case letters, digits, '_', '.' or '-', "
        "such as 'h100'",
    ),
]
DeviceName = Annotated[
    str, matches(_DEVICE, "device_name", "a name in /dev, such as 'fuse' or 'nvidia*'")
]
MountOption = Annotated[
    str, matches(_MOUNT_OPTION, "mount_option", "a mount option, such as 'nfsvers=4.2'")
]
MigProfile = Annotated[
    str, matches(_MIG_PROFILE, "mig_profile", "a MIG profile, such as '1g.10gb' or '1g.10gb.me'")
]

KubernetesVersion = Annotated[
    str,
    matches(
        _KUBERNETES,
        "kubernetes_version",
        "a minor version of Kubernetes, 1.30 or later, such as '1.33'",
    ),
]
"""The stack requires ValidatingAdmissionPolicies, which Kubernetes has since version 1.30."""
KubernetesRelease = Annotated[
    str,
    matches(
        _RELEASE, "kubernetes_release", "a Kubernetes release, 1.31 or later, such as '1.34.4'"
    ),
]
Platform = Annotated[
    str, matches(_PLATFORM, "platform", "a Nebius platform, such as 'gpu-h100-sxm' or 'cpu-d3'")
]
NebiusProject = Annotated[
    str, matches(_NEBIUS_PROJECT, "project", "an id of a Nebius project, such as 'project-e00…'")
]
Region = Annotated[
    str,
    matches(
        _REGION,
        "region",
        "a region: lower-case words and a number, joined by '-', such as 'eu-central-1'",
    ),
]
Preset = Annotated[
    str, matches(_PRESET, "preset", "a Nebius preset, such as '8gpu-128vcpu-1600gb'")
]


def _amd64_instance(value: str) -> str:
    if _ARM_INSTANCE.fullmatch(value):
        raise PydanticCustomError(
            "amd64_instance",
            "has ARM CPUs, but the images require amd64; expected an Intel or AMD type, such as "
            "'m7i.4xlarge'",
        )
    return value


InstanceType = Annotated[
    str,
    matches(_INSTANCE, "instance_type", "an instance type, such as 'p5.48xlarge'"),
    AfterValidator(_amd64_instance),
]


# --- Sizes and times -----------------------------------------------------------------------------


def _unit_hint(value: object) -> str:
    """Return a suggestion for a size with a decimal unit or without a unit."""
    match = re.fullmatch(r"([1-9]\d{0,6}) ?([MGT]?)(i?B)?", str(value), re.ASCII | re.IGNORECASE)
    if not match:
        return ""
    if not match[2]:
        return f"; did you mean '{match[1]}MiB' or '{match[1]}GiB'?"
    return f"; did you mean '{match[1]}{match[2].upper()}iB'?"


def parse_memory(value: object) -> int:
    """Convert a text with a unit to MiB."""
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise PydanticCustomError(
            "memory",
            "expected a whole number from 1 to 9999999 with its unit, such as '512MiB', '16GiB' or "
            "'1TiB'{hint}",
            {"hint": _unit_hint(value)},
        )
    return int(match[1]) * _MIB[match[2]]


def parse_time(value: str) -> float:
    """Convert a time in Slurm's format to minutes; UNLIMITED is infinite.

    The formats (slurm.conf(5), MaxTime) are minutes, minutes:seconds, hours:minutes:seconds,
    days-hours, days-hours:minutes, days-hours:minutes:seconds. Raises `ValueError`.
    """
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    match = _TIME.fullmatch(value)
    if match is None:
        raise ValueError(f"'{value}' is not a time")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60
    minutes, seconds = (*numbers, 0)[:2]
    return minutes + seconds / 60


def _slurm_time(value: object) -> str:
    # A number without quotes may be meant as seconds, but Slurm would read it as minutes.
    if not isinstance(value, str) or not _is_positive_time(value):
        raise PydanticCustomError(
            "slurm_time",
            "expected a time above zero, in quotes: '2-00:00:00' (two days), '04:00:00' "
            "(four hours), '90' (minutes) or 'UNLIMITED'",
        )
    _check_unambiguous(value)
    return value


def _is_positive_time(value: str) -> bool:
    try:
        return parse_time(value) > 0
    except ValueError:
        return False


def _check_unambiguous(time: str) -> None:
    """Refuse `48:00`: operators mean hours, and Slurm reads minutes and seconds."""
    minutes, colon, seconds = time.partition(":")
    if colon and minutes.isdigit() and seconds.isdigit():
        raise PydanticCustomError(
            "ambiguous_time",
            "expected a time with hours, because Slurm reads this as minutes and seconds; write "
            "'{hours}:{minutes}:00' or '00:{hours}:{minutes}'",
            {"hours": minutes.zfill(2), "minutes": seconds.zfill(2)},
        )


MemoryMiB = Annotated[
    int,
    BeforeValidator(parse_memory),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEMORY.pattern}$", "examples": ["16GiB"]}),
]


def at_least(mib: int) -> AfterValidator:
    """Return a validator of a size in MiB that refuses smaller sizes."""

    def check(value: int) -> int:
        if value < mib:
            raise PydanticCustomError("least_size", "expected at least {least}MiB", {"least": mib})
        return value

    return AfterValidator(check)


SlurmTime = Annotated[
    str,
    BeforeValidator(_slurm_time),
    WithJsonSchema(
        {"type": "string", "examples": ["2-00:00:00", "04:00:00", "90", "UNLIMITED"]},
    ),
]


PurgeAge = Annotated[
    str,
    matches(
        _PURGE_AGE,
        "purge_age",
        "an age: a number from 1 to 9999, then 'hours', 'days' or 'months' without a space, "
        "such as '90days'",
    ),
]


def _cron(value: str) -> str:
    fields = value.split(" ")
    if len(fields) != len(_CRON):
        raise PydanticCustomError(
            "cron", "expected five cron fields, such as '17 3 * * *' for 03:17 every day"
        )
    for field, (name, allowed) in zip(fields, _CRON.items(), strict=True):
        if not _is_cron_field(field, allowed):
            raise PydanticCustomError(
                "cron",
                "{name} '{field}': expected numbers from {first} to {last}, ranges such as "
                "2-5, or *, each with an optional step such as */2, separated by commas",
                {
                    "field": field,
                    "name": name,
                    "first": allowed.start,
                    "last": allowed.stop - 1,
                },
            )
    _check_that_it_fires(fields)
    return value


def _check_that_it_fires(fields: list[str]) -> None:
    """Refuse days that no month has, such as 31 February."""
    _, _, days, months, weekdays = fields
    # If a day of the week is set too, cron also runs on each such day of the week, so the schedule
    # fires even if no month has the date.
    if any(part not in ("*", "*/1") for part in weekdays.split(",")):
        return
    least = min(_cron_values(days, _CRON["day of the month"]))
    chosen = _cron_values(months, _CRON["month"])
    if all(least > _LONGEST[month] for month in chosen):
        raise PydanticCustomError(
            "cron",
            "this schedule never runs, because no {month} has day {day}; choose a day that "
            "the month has",
            {"month": calendar.month_name[min(chosen)], "day": least},
        )


def _cron_values(field: str, allowed: range) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        bounds, _, step = part.partition("/")
        first, _, last = bounds.partition("-")
        if first == "*":
            values = allowed
        else:
            # In `5/15`, the range starts at 5 and continues to the field's largest value.
            end = int(last or (allowed.stop - 1 if step else first))
            values = range(int(first), end + 1)
        found.update(values[:: int(step or 1)])
    return found


def cron_times(schedule: str) -> tuple[int, int]:
    """Return how often a `Cron` schedule fires in each hour, and on each day, that it selects."""
    minutes, hours = (
        len(_cron_values(field, _CRON[name]))
        for field, name in zip(schedule.split(" "), ("minute", "hour"), strict=False)
    )
    return minutes, minutes * hours


def _is_cron_field(field: str, allowed: range) -> bool:
    """Return whether each part of a cron field is `*`, a number or a range; steps are optional."""
    for part in field.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None:
            return False
        first, last = match["first"], match["last"] or match["first"]
        if first and not allowed.start <= int(first) <= int(last) < allowed.stop:
            return False
    return True


Cron = Annotated[str, AfterValidator(_cron)]


def _number(value: object) -> object:
    # YAML has many words for true and false. pydantic would accept them as 1 and 0.
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number")
    return value


Number = BeforeValidator(_number)
"""Validator for every number: refuses true and false."""
Port = Annotated[int, Field(ge=1, le=65535), Number]
NodePort = Annotated[int, Field(ge=30000, le=32767), Number]
_WEEK = 7 * 24 * 3600


def _seconds(value: object) -> object:
    match = re.fullmatch(r"(\d{1,6}) ?([smhd])", value) if isinstance(value, str) else None
    if match:
        seconds = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]
        hint = f"; did you mean {seconds}?" if seconds <= _WEEK else f", at most {_WEEK}"
        raise PydanticCustomError(
            "seconds", "expected a whole number of seconds{hint}", {"hint": hint}
        )
    return _number(value)


def _days(value: object) -> object:
    match = re.fullmatch(r"(\d{1,4}) ?([dw])", value) if isinstance(value, str) else None
    if match:
        days = int(match[1]) * {"d": 1, "w": 7}[match[2]]
        raise PydanticCustomError(
            "days", "expected a whole number of days; did you mean {days}?", {"days": days}
        )
    return _number(value)


Seconds = Annotated[int, Field(ge=0, le=_WEEK), BeforeValidator(_seconds)]
Days = Annotated[int, Field(ge=1, le=3650), BeforeValidator(_days)]
Uint16 = Annotated[int, Field(ge=0, le=65535), Number]
"""Slurm stores priority tiers and factors in 16 bits (source: slurm.conf(5), PriorityTier)."""


# --- Addresses -----------------------------------------------------------------------------------


def _network_of(value: str) -> str | None:
    """Return the range that contains an address with a prefix length; None for other texts."""
    try:
        return str(ipaddress.ip_network(value, strict=False))
    except ValueError:
        return None


def _cidr(value: str) -> str:
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        network = None
    if network is None and (meant := _network_of(value)):
        raise PydanticCustomError(
            "cidr",
            "is an address in the middle of a range; did you mean the range '{meant}'?",
            {"meant": meant},
        )
    if network is None or "%" in value:
        raise PydanticCustomError(
            "cidr", "expected an address range, such as '10.0.0.0/16' or 'fd00:1::/64'"
        )
    # If a policy or packet filter blocked all addresses, nodes could not reach each other.
    if network.prefixlen == 0:
        raise PydanticCustomError(
            "all_addresses",
            "contains all addresses; expected a narrower range, such as '10.0.0.0/16'",
        )
    return str(network)


def _address(value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise PydanticCustomError(
            "address", "expected an IPv4 address, such as '192.0.2.10'"
        ) from None


Cidr = Annotated[str, AfterValidator(_cidr)]
Address = Annotated[str, AfterValidator(_address)]


# --- Text in files -------------------------------------------------------------------------------


def _scalar(value: object) -> object:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # A space would begin another parameter on the same line, and a '#' would begin a comment. A
    # backslash at the end would append the next line.
    if isinstance(value, str) and value.isprintable() and re.fullmatch(r"[^\s#\"'\\]+", value):
        return value
    raise PydanticCustomError(
        "scalar",
        "expected a number, true, false, or text that is not empty and has no spaces, "
        "quotes, '#' or backslashes",
    )


def _line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise PydanticCustomError("line", "expected one line of text that is not empty")
    return value.strip()


def _text(value: str) -> str:
    if not value.strip() or not all(line.isprintable() for line in value.split("\n")):
        raise PydanticCustomError(
            "text", "expected text that is not empty and has no control characters"
        )
    return value.strip("\n")


def _hosts(value: str) -> str:
    try:
        expand(value)
    except ValueError as error:
        raise PydanticCustomError("hosts", "{reason}", {"reason": str(error)}) from error
    return value


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or {".", ".."} & set(value.split("/")):
        raise PydanticCustomError(
            "path",
            "expected an absolute path, such as '/data': only letters, digits, '_', '.', "
            "'@', '-' and '/', no final '/', and no part '.' or '..'",
        )
    return value


def _project_file(value: str) -> str:
    path = PurePosixPath(value)
    if not value or path.is_absolute() or ".." in path.parts:
        raise PydanticCustomError(
            "project_file", "expected a relative path inside the project, without '..'"
        )
    return value


ProjectFile = Annotated[str, AfterValidator(_project_file)]
ParameterName = Annotated[
    str,
    matches(
        _PARAMETER, "parameter_name", "a parameter name: a letter, then letters, digits or '_'"
    ),
]
Scalar = Annotated[
    Any,
    BeforeValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Line = Annotated[str, AfterValidator(_line)]
DistinguishedName = Annotated[str, AfterValidator(_line), AfterValidator(_dn)]
Text = Annotated[str, AfterValidator(_text)]
"""Lines of text for users to read."""
Hosts = Annotated[str, AfterValidator(_hosts)]
Path = Annotated[str, AfterValidator(_path)]


# --- Keys ----------------------------------------------------------------------------------------


def parse_ssh_key(value: str) -> str:
    """Check and trim a public key in the format of `authorized_keys`, without options.

    Raises `ValueError` with the reason.
    """
    kind, _, rest = value.strip().partition(" ")
    blob, _, comment = rest.strip().partition(" ")
    if "PRIVATE KEY" in value:
        raise ValueError("is a private key; use the public key, in the file that ends in .pub")
    if kind not in _KEY_TYPES:
        raise ValueError("expected an OpenSSH public key, such as 'ssh-ed25519 AAAA… comment'")
    try:
        data = base64.b64decode(blob, validate=True)
    except ValueError:
        data = b""
    # RFC 4253, section 6.6: the blob begins with its own type as a length-prefixed string.
    if data[4 : 4 + len(kind)] != kind.encode() or data[:4] != len(kind).to_bytes(4, "big"):
        raise ValueError(f"the part after '{kind}' is not a key of this type; copy the whole key")
    if not _is_whole(data):
        raise ValueError("the key is cut off, or has bytes after its end; copy the whole key")
    if not comment.isprintable():
        raise ValueError(
            "expected one key on one line; list each further key as an entry of its own"
        )
    return f"{kind} {blob} {comment}".strip()


def _is_whole(blob: bytes) -> bool:
    """Return whether a key's binary data is complete: the type, and at least one further field.

    A length precedes the type and each field.
    """
    fields = 0
    while len(blob) >= _LENGTH:
        size = int.from_bytes(blob[:_LENGTH], "big")
        if size > len(blob) - _LENGTH:
            return False
        blob, fields = blob[_LENGTH + size :], fields + 1
    return not blob and fields > 1


def _ssh_key(value: str) -> str:
    try:
        return parse_ssh_key(value)
    except ValueError as error:
        raise PydanticCustomError("ssh_key", "{reason}", {"reason": str(error)}) from error


SshKey = Annotated[str, AfterValidator(_ssh_key)]
