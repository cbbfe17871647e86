"""Limits of usage: accounts, their users, and qualities of service.

Fields have the names of sacctmgr(1), in snake case: `grp_tres` is `GrpTRES`. The stack manages only
limits that are set here: other limits keep the value that an administrator gave them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from components.settings.types import (
    DnsLabel,
    Line,
    Model,
    Number,
    Seconds,
    SlurmTime,
    UserName,
    cross_field,
    duplicates,
    in_cycle,
    known_names,
    parse_memory,
)

ROOT = "root"
"""The root of the account tree, which Slurm creates."""
NORMAL = "normal"
"""The QOS that slurmdbd creates and gives to all users."""

_MOST = 2_147_483_647

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,39}")
_TRES = re.compile(r"cpu|mem|node|energy|billing|vmem|pages|(gres|license|fs|bb|ic)/[a-z0-9_.:-]+")
_THING = re.compile(
    r"(account|qos) [a-z0-9_.-]+|user [a-z0-9_-]+ account [a-z0-9_.-]+( partition [a-z0-9-]+)?"
)


def _name(value: str) -> str:
    # sacctmgr converts names to lower case, so names that differ only in case would collide.
    if not _NAME.fullmatch(value):
        raise PydanticCustomError(
            "account_name",
            "expected an account or QOS name: at most 40 characters, only a-z, 0-9, '_', '.' and "
            "'-', and the first is not '.' or '-'",
        )
    return value


def _tres(value: str) -> str:
    if not _TRES.fullmatch(value):
        raise PydanticCustomError(
            "tres",
            "expected a TRES (trackable resource), such as 'cpu', 'mem', 'node' or 'gres/gpu'",
        )
    return value


def _amounts(value: object) -> object:
    """Convert memory from text to MiB. pydantic checks the other amounts later."""
    if not isinstance(value, Mapping):
        return value
    amounts = dict(value)
    if "mem" in amounts:
        try:
            amounts["mem"] = parse_memory(amounts["mem"])
        except PydanticCustomError as error:
            raise cross_field("mem", f"'{amounts['mem']}': {error.message()}") from None
    return amounts


def _shares(value: object) -> object:
    if value == "parent":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    raise PydanticCustomError("shares", "expected a whole number of at least 0, or 'parent'")


def _thing(value: str) -> str:
    if not _THING.fullmatch(value):
        raise PydanticCustomError(
            "thing",
            "expected 'account NAME', 'user NAME account NAME', 'qos NAME' or 'user NAME account "
            "NAME partition NAME'; copy the text from the deploy's error about jobs that use the "
            "object",
        )
    return value


AccountName = Annotated[str, AfterValidator(_name)]
"""Name of an account or of a QOS."""
Count = Annotated[int, Field(ge=0, le=_MOST), Number]
Factor = Annotated[float, Field(ge=0, le=1_000_000), Number]
Tres = Annotated[
    dict[
        Annotated[str, AfterValidator(_tres)],
        Annotated[int, Field(ge=0, le=9_223_372_036_854_775_807), Number],
    ],
    BeforeValidator(_amounts),
    WithJsonSchema({"type": "object", "examples": [{"cpu": 100, "mem": "1TiB", "gres/gpu": 8}]}),
]
"""Amounts of trackable resources (TRES). An amount of memory is text with a unit."""
Shares = Annotated[int | Literal["parent"], BeforeValidator(_shares)]


class Limits(Model):
    """Limits that can be set for accounts, for users in accounts, and for QOS.

    `grp_…` limits apply to all jobs together, `max_…` limits to each job or each user. The
    half-life of past usage is slurm.priority.decay_half_life.
    """

    priority: Count | None = None
    """Priority. Its weight is slurm.priority.association, or slurm.priority.qos for a QOS."""
    min_prio_thresh: Count | None = None
    """Minimum priority that a job must have so that slurmctld reserves resources for it."""
    grp_jobs: Count | None = None
    """Limit of running jobs."""
    grp_jobs_accrue: Count | None = None
    """Limit of pending jobs whose priority grows with their age."""
    grp_submit_jobs: Count | None = None
    """Limit of pending and running jobs."""
    grp_tres: Tres | None = None
    """Limit of the resources of all running jobs, such as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: Tres | None = None
    """Limit of the usage of past and running jobs, in minutes of each resource."""
    grp_tres_run_mins: Tres | None = None
    """Limit of the usage that running jobs can still reach until their time limits, in minutes of
    each resource."""
    grp_wall: SlurmTime | None = None
    """Limit of the total run time of past and running jobs."""
    max_tres_per_job: Tres | None = None
    max_tres_per_node: Tres | None = None
    """Limit of a job's resources on one node."""
    max_tres_mins_per_job: Tres | None = None
    """Limit of a job's usage until its time limit, in minutes of each resource."""
    max_wall: SlurmTime | None = None
    """Longest time limit of a job."""


class _Association(Limits):
    """An account, or a user in an account.

    Accounts and users below an account inherit each limit that they do not set themselves.
    """

    fairshare: Shares | None = None
    """Share relative to sibling associations; by default 1, as in Slurm. `parent`: fair-share uses
    the parent association."""
    max_jobs: Count | None = None
    """Limit of each user's running jobs."""
    max_jobs_accrue: Count | None = None
    """Limit of each user's pending jobs whose priority grows with their age."""
    max_submit_jobs: Count | None = None
    """Limit of each user's pending and running jobs."""
    qos: tuple[AccountName, ...] = ()
    """QOS that jobs may request; by default those of the parent account. The root account has
    `normal`."""
    default_qos: AccountName | None = None
    """QOS of jobs that do not request one."""

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.default_qos and self.qos and self.default_qos not in self.qos:
            raise cross_field(
                "default_qos",
                f"'{self.default_qos}': this QOS is not in the setting 'qos' of the same account "
                "or user; add it to 'qos'",
            )
        return self


class UserPartition(_Association):
    """Limits of a user's jobs in one partition. They replace the user's limits in the account."""

    name: DnsLabel


class AccountUser(_Association):
    """A user in an account."""

    name: UserName
    partitions: tuple[UserPartition, ...] = ()
    """Limits of the user's jobs in single partitions."""
    default: bool = False
    """Make this the default account of the user's jobs. Without a default, Slurm uses the first
    account."""


class Account(_Association):
    """An account: a group of users who share its limits."""

    name: AccountName
    parent: AccountName = ROOT
    description: Line | None = None
    organization: Line | None = None
    users: tuple[AccountUser, ...] = ()

    @model_validator(mode="after")
    def _is_not_slurms_own(self) -> Self:
        if self.name == ROOT:
            raise cross_field(
                "name",
                f"'{ROOT}': Slurm reserves this name for the root of the account tree; choose "
                "another account name",
            )
        for name in duplicates(user.name for user in self.users):
            raise cross_field("users", f"'{name}' is listed twice; keep one")
        for index, user in enumerate(self.users):
            for name in duplicates(partition.name for partition in user.partitions):
                raise cross_field(
                    f"users[{index}].partitions", f"'{name}' is listed twice; keep one"
                )
        return self


Flag = Literal[
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoDecay",
    "NoReserve",
    "OverPartQOS",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "PartitionTimeLimit",
    "RequiresReservation",
    "UsageFactorSafe",
]


class Qos(Limits):
    """A quality of service, which jobs request with `--qos`."""

    name: AccountName
    flags: tuple[Flag, ...] = ()
    preempt: tuple[AccountName, ...] = ()
    """QOS whose jobs this QOS may preempt; requires slurm.preemption.type: qos."""
    preempt_mode: Literal["cancel", "requeue", "suspend"] | None = None
    """Action on this QOS's jobs when they are preempted; by default slurm.preemption.mode."""
    preempt_exempt_time: SlurmTime | None = None
    """Minimum run time of this QOS's jobs before they can be preempted."""
    grace_time: Seconds | None = None
    """Seconds that this QOS's jobs may continue after they are preempted."""
    usage_factor: Factor | None = None
    """Factor that multiplies the usage of jobs when Slurm counts it for limits and fair-share; by
    default 1, as in Slurm."""
    usage_threshold: Factor | None = None
    """Minimum fair-share for which Slurm accepts and starts jobs."""
    limit_factor: Factor | None = None
    """Factor that multiplies those limits of accounts and users that are in minutes
    (`…_tres_mins`)."""
    max_jobs_per_account: Count | None = None
    max_jobs_per_user: Count | None = None
    max_jobs_accrue_per_account: Count | None = None
    max_jobs_accrue_per_user: Count | None = None
    max_submit_jobs_per_account: Count | None = None
    max_submit_jobs_per_user: Count | None = None
    max_tres_per_account: Tres | None = None
    max_tres_per_user: Tres | None = None
    max_tres_run_mins_per_account: Tres | None = None
    max_tres_run_mins_per_user: Tres | None = None
    min_tres_per_job: Tres | None = None
    """Smallest amounts that a job may request."""

    @model_validator(mode="after")
    def _some_job_fits(self) -> Self:
        least, most = self.min_tres_per_job or {}, self.max_tres_per_job or {}
        for name in sorted(least.keys() & most.keys()):
            if least[name] > most[name]:
                raise cross_field(
                    f"min_tres_per_job.{name}",
                    f"{least[name]}: expected at most max_tres_per_job.{name} of the same QOS, "
                    f"which is {most[name]}; lower the minimum, or raise the maximum",
                )
        return self


Removal = Annotated[str, AfterValidator(_thing)]
Enforced = Literal["associations", "limits", "qos", "safe"]


# --- Rules between accounts, users and QOS -------------------------------------------------------


def check_names(accounts: Sequence[Account], qos: Sequence[Qos]) -> None:
    """Refuse duplicate names, references to missing objects, and cycles."""
    for key, ones in (("accounts", accounts), ("qos", qos)):
        for name in duplicates(one.name for one in ones):
            raise cross_field(key, f"two entries are named '{name}'; give each a unique name")
    known = {one.name for one in qos} | {NORMAL}
    for key, names in _qos_named(accounts, qos):
        for name in names:
            if name not in known:
                raise cross_field(
                    key, f"'{name}' is not a QOS in accounting.qos; {known_names(name, known)}"
                )
    parents = {account.name: account.parent for account in accounts}
    for index, account in enumerate(accounts):
        if account.parent not in (ROOT, *parents):
            raise cross_field(
                f"accounts[{index}].parent",
                f"'{account.parent}' is not an account in accounting.accounts; "
                f"{known_names(account.parent, parents)}",
            )
    _refuse_cycle("accounts", {name: (parent,) for name, parent in parents.items()})
    _refuse_cycle("qos", {one.name: one.preempt for one in qos})


def _qos_named(
    accounts: Iterable[Account], qos: Iterable[Qos]
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield each key that names QOS, with the names of these QOS."""
    yield from granted(accounts)
    for i, one in enumerate(qos):
        yield f"qos[{i}].preempt", one.preempt


def granted(accounts: Iterable[Account]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield each key that lets jobs use QOS, with the names of these QOS."""
    for i, account in enumerate(accounts):
        places: list[tuple[str, _Association]] = [(f"accounts[{i}]", account)]
        for j, user in enumerate(account.users):
            at = f"accounts[{i}].users[{j}]"
            places.append((at, user))
            places += [(f"{at}.partitions[{k}]", each) for k, each in enumerate(user.partitions)]
        for key, place in places:
            yield f"{key}.qos", place.qos
            yield f"{key}.default_qos", (place.default_qos,) if place.default_qos else ()


def _refuse_cycle(key: str, above: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an object that refers to itself, directly or through other objects."""
    problem = {
        "accounts": (
            "is its own parent, directly or through other accounts; set 'parent' of this account "
            "to another account, so that no account is its own parent"
        ),
        "qos": (
            "preempts itself, directly or through other QOS; change 'preempt' of this QOS, or of "
            "a QOS that it preempts, so that no QOS preempts itself"
        ),
    }[key]
    if name := in_cycle(above):
        raise cross_field(key, f"'{name}' {problem}")


def check_defaults(accounts: Iterable[Account]) -> None:
    """Refuse a user with two default accounts."""
    found: dict[str, str] = {}
    for account in accounts:
        for user in account.users:
            if not user.default:
                continue
            if user.name in found:
                raise cross_field(
                    "accounts",
                    f"user '{user.name}' has two default accounts, '{found[user.name]}' and "
                    f"'{account.name}'; keep 'default: true' in only one of these accounts",
                )
            found[user.name] = account.name


def things(accounts: Iterable[Account], qos: Iterable[Qos]) -> set[str]:
    """Return all accounts, users of accounts and QOS in the format of `remove_with_jobs`."""
    found = {f"qos {one.name}" for one in qos}
    for account in accounts:
        found.add(f"account {account.name}")
        found |= {f"user {user.name} account {account.name}" for user in account.users}
    return found
