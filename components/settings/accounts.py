"""Limits of usage: accounts, their users, and qualities of service.

Fields have the names of sacctmgr(1): `GrpTRES` is `grp_tres`. The stack does not manage a limit
that is not set here: a value that an administrator sets by hand stays.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from components.settings.types import (
    Line,
    Model,
    Number,
    Seconds,
    SlurmTime,
    UserName,
    cross_field,
    duplicates,
    known_names,
    parse_memory,
)

ROOT = "root"
"""The account above all others, which Slurm creates."""
NORMAL = "normal"
"""The QOS that slurmdbd creates, and that all users have."""

_MOST = 2_147_483_647

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,39}")
_TRES = re.compile(r"cpu|mem|node|energy|billing|vmem|pages|(gres|license|fs|bb|ic)/[a-z0-9_.:-]+")
_THING = re.compile(r"(account|qos) [a-z0-9_.-]+|user [a-z0-9_-]+ account [a-z0-9_.-]+")


def _name(value: str) -> str:
    # sacctmgr converts names to lower case, so that two names could become the same.
    if not _NAME.fullmatch(value):
        raise PydanticCustomError(
            "account_name",
            "expected a name of at most 40 lower-case letters, digits and '_', '.', '-'",
        )
    return value


def _tres(value: str) -> str:
    if not _TRES.fullmatch(value):
        raise PydanticCustomError(
            "tres", "expected a TRES (trackable resource), as 'cpu', 'mem', 'node' or 'gres/gpu'"
        )
    return value


def _amounts(value: object) -> object:
    """Convert memory from its text to MiB; the other amounts are checked as numbers later."""
    if not isinstance(value, Mapping):
        return value
    return {name: parse_memory(n) if name == "mem" else n for name, n in value.items()}


def _shares(value: object) -> object:
    if value == "parent":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    raise PydanticCustomError("shares", "expected a whole number, or 'parent'")


def _thing(value: str) -> str:
    if not _THING.fullmatch(value):
        raise PydanticCustomError(
            "thing",
            "expected 'account NAME', 'user NAME account NAME' or 'qos NAME', "
            "as in the deploy's error",
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
"""Amounts by kind of resource; memory with its unit."""
Shares = Annotated[int | Literal["parent"], BeforeValidator(_shares)]


class Limits(Model):
    """Limits that accounts, users in accounts and QOS have in common.

    `grp_…` apply to all jobs together, `max_…` to each job or each user. Past usage decays by
    slurm.priority.decay_half_life.
    """

    priority: Count | None = None
    """Priority, weighted by slurm.priority.association, or for a QOS by slurm.priority.qos."""
    min_prio_thresh: Count | None = None
    """Lowest priority of a job that may reserve resources."""
    grp_jobs: Count | None = None
    """Running jobs."""
    grp_jobs_accrue: Count | None = None
    """Waiting jobs that gain priority by age."""
    grp_submit_jobs: Count | None = None
    """Waiting and running jobs."""
    grp_tres: Tres | None = None
    """Resources of all running jobs together, as `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: Tres | None = None
    """Past and present usage of all jobs together, in minutes of each resource."""
    grp_tres_run_mins: Tres | None = None
    """Usage that running jobs may still reach by their time limits, in minutes of each resource."""
    grp_wall: SlurmTime | None = None
    """Run time of past and running jobs together."""
    max_tres_per_job: Tres | None = None
    max_tres_per_node: Tres | None = None
    """Resources of a job on one node."""
    max_tres_mins_per_job: Tres | None = None
    """Usage of a job by its time limit, in minutes of each resource."""
    max_wall: SlurmTime | None = None
    """Time limit of a job."""


class _Association(Limits):
    """An account, or a user in one. Those below inherit each limit that they do not set."""

    fairshare: Shares | None = None
    """Share relative to its siblings, by default 1 as in Slurm; `parent`: no share of its own."""
    max_jobs: Count | None = None
    """Running jobs of each user."""
    max_jobs_accrue: Count | None = None
    """Waiting jobs of each user that gain priority by age."""
    max_submit_jobs: Count | None = None
    """Waiting and running jobs of each user."""
    qos: tuple[AccountName, ...] = ()
    """QOS that jobs may request; by default those of the account above, in the end `normal`."""
    default_qos: AccountName | None = None
    """QOS of jobs that request none."""

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.default_qos and self.qos and self.default_qos not in self.qos:
            raise cross_field("default_qos", f"'{self.default_qos}': is not in qos; add it")
        return self


class AccountUser(_Association):
    """A user in an account."""

    name: UserName
    default: bool = False
    """Default account of the user's jobs. If none is the default, Slurm takes the first one."""


class Account(_Association):
    """An account: a group of users who share its limits."""

    name: AccountName
    parent: AccountName = ROOT
    """Parent account."""
    description: Line | None = None
    organization: Line | None = None
    users: tuple[AccountUser, ...] = ()

    @model_validator(mode="after")
    def _is_not_slurms_own(self) -> Self:
        if self.name == ROOT:
            raise cross_field("name", f"'{ROOT}': is reserved by Slurm; choose another")
        for name in duplicates(user.name for user in self.users):
            raise cross_field("users", f"'{name}' is listed twice; keep one")
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
    """A quality of service, which jobs request by `--qos`."""

    name: AccountName
    flags: tuple[Flag, ...] = ()
    preempt: tuple[AccountName, ...] = ()
    """QOS with jobs that its jobs may preempt, with slurm.preemption.type qos."""
    preempt_mode: Literal["cancel", "requeue", "suspend"] | None = None
    """Action on its preempted jobs; by default slurm.preemption.mode."""
    preempt_exempt_time: SlurmTime | None = None
    """Run time before its jobs can be preempted."""
    grace_time: Seconds | None = None
    """Seconds that its preempted jobs may continue."""
    usage_factor: Factor | None = None
    """Factor of usage for limits and shares; by default 1 as in Slurm."""
    usage_threshold: Factor | None = None
    """Fair-share below which jobs are neither accepted nor started."""
    limit_factor: Factor | None = None
    """Factor of associations' limits in minutes (`…_tres_mins`)."""
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
    """Smallest request of a job."""


Removal = Annotated[str, AfterValidator(_thing)]
Enforced = Literal["associations", "limits", "qos", "safe"]


# --- Rules between them --------------------------------------------------------------------------


def check_names(accounts: Sequence[Account], qos: Sequence[Qos]) -> None:
    """Refuse duplicate names, references to missing objects, and cycles."""
    for key, ones in (("accounts", accounts), ("qos", qos)):
        for name in duplicates(one.name for one in ones):
            raise cross_field(key, f"two are named '{name}'; give each a unique name")
    known = {one.name for one in qos} | {NORMAL}
    for key, names in _qos_named(accounts, qos):
        for name in names:
            if name not in known:
                raise cross_field(key, f"'{name}' is not a QOS; {known_names(name, known)}")
    parents = {account.name: account.parent for account in accounts}
    for index, account in enumerate(accounts):
        if account.parent not in (ROOT, *parents):
            raise cross_field(
                f"accounts[{index}].parent",
                f"'{account.parent}' is not an account; {known_names(account.parent, parents)}",
            )
    _refuse_cycle("accounts", {name: (parent,) for name, parent in parents.items()})
    _refuse_cycle("qos", {one.name: one.preempt for one in qos})


def _qos_named(
    accounts: Iterable[Account], qos: Iterable[Qos]
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Return the names of QOS in each key."""
    for i, account in enumerate(accounts):
        places: list[tuple[str, _Association]] = [(f"accounts[{i}]", account)]
        places += [(f"accounts[{i}].users[{j}]", user) for j, user in enumerate(account.users)]
        for key, place in places:
            yield f"{key}.qos", place.qos
            yield f"{key}.default_qos", (place.default_qos,) if place.default_qos else ()
    for i, one in enumerate(qos):
        yield f"qos[{i}].preempt", one.preempt


def _refuse_cycle(key: str, above: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an object that refers to itself, directly or through others."""
    problem = {"accounts": "is below itself", "qos": "preempts itself"}[key]
    for name in sorted(above):
        reached: set[str] = set()
        waiting = list(above[name])
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting.extend(above.get(at, ()))
        if name in reached:
            raise cross_field(
                key, f"'{name}' {problem}, directly or through others; remove the cycle"
            )


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
                    f"'{user.name}' has two default accounts, '{found[user.name]}' and "
                    f"'{account.name}'; keep one",
                )
            found[user.name] = account.name


def things(accounts: Iterable[Account], qos: Iterable[Qos]) -> set[str]:
    """Return all objects in the settings, in the format of `remove_with_jobs`."""
    found = {f"qos {one.name}" for one in qos}
    for account in accounts:
        found.add(f"account {account.name}")
        found |= {f"user {user.name} account {account.name}" for user in account.users}
    return found
