"""Who may use how much: accounts, users in them, and qualities of service.

Fields are called as in sacctmgr(1): `GrpTRES` is `grp_tres`. A limit that is not set here is not
looked after: what an administrator sets by hand then stays.
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
"""The account above all others, which Slurm makes."""
NORMAL = "normal"
"""The QOS that slurmdbd makes, and that everybody has."""

_MOST = 2_147_483_647

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,39}")
_TRES = re.compile(r"cpu|mem|node|energy|billing|vmem|pages|(gres|license|fs|bb|ic)/[a-z0-9_.:-]+")
_THING = re.compile(r"(account|qos) [a-z0-9_.-]+|user [a-z0-9_-]+ account [a-z0-9_.-]+")


def _name(value: str) -> str:
    # sacctmgr makes capital letters small, so that two names could be one.
    if not _NAME.fullmatch(value):
        raise PydanticCustomError(
            "account_name",
            "expected a name of at most 40 lower-case letters, digits and '_', '.', '-'",
        )
    return value


def _tres(value: str) -> str:
    if not _TRES.fullmatch(value):
        raise PydanticCustomError(
            "tres", "expected what Slurm counts, as 'cpu', 'mem', 'node' or 'gres/gpu'"
        )
    return value


def _amounts(value: object) -> object:
    """Memory in MiB, from its text; the others are looked at as numbers."""
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
            "expected 'account NAME', 'user NAME account NAME' or 'qos NAME', as the refusal says",
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
"""Amounts by kind; memory with its unit."""
Shares = Annotated[int | Literal["parent"], BeforeValidator(_shares)]


class Limits(Model):
    """What accounts, users in accounts and QOS can all be given.

    `grp_…` hold for all jobs together, `max_…` for each job or each user. Use in the past fades by
    slurm.priority.decay_half_life.
    """

    priority: Count | None = None
    """Counts by slurm.priority.association, of a QOS by slurm.priority.qos."""
    min_prio_thresh: Count | None = None
    """Priority that a job must have to reserve resources."""
    grp_jobs: Count | None = None
    """Jobs that run."""
    grp_jobs_accrue: Count | None = None
    """Jobs that wait and gain priority by it."""
    grp_submit_jobs: Count | None = None
    """Jobs that wait or run."""
    grp_tres: Tres | None = None
    """What running jobs have, by kind: `{cpu: 100, mem: 1TiB, gres/gpu: 8}`."""
    grp_tres_mins: Tres | None = None
    """What past and running jobs have used, in minutes of each kind."""
    grp_tres_run_mins: Tres | None = None
    """What running jobs may yet use until their time limits, in minutes of each kind."""
    grp_wall: SlurmTime | None = None
    """Time that past and running jobs have run."""
    max_tres_per_job: Tres | None = None
    max_tres_per_node: Tres | None = None
    """What a job has on one node."""
    max_tres_mins_per_job: Tres | None = None
    """Minutes of each kind that a job uses by its time limit."""
    max_wall: SlurmTime | None = None
    """Time limit of a job."""


class _Association(Limits):
    """An account, or a user in one; what is below inherits each limit that it has not itself."""

    fairshare: Shares | None = None
    """Share of the cluster beside those next to it; Slurm gives 1. `parent`: none of its own."""
    max_jobs: Count | None = None
    """Jobs of each user that run."""
    max_jobs_accrue: Count | None = None
    """Jobs of each user that wait and gain priority by it."""
    max_submit_jobs: Count | None = None
    """Jobs of each user that wait or run."""
    qos: tuple[AccountName, ...] = ()
    """QOS that jobs may ask for; by default those of the account above, in the end `normal`."""
    default_qos: AccountName | None = None
    """QOS of jobs that ask for none."""

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.default_qos and self.qos and self.default_qos not in self.qos:
            raise cross_field(
                "default_qos", f"'{self.default_qos}': is not one of qos; add it there"
            )
        return self


class AccountUser(_Association):
    """A user in an account."""

    name: UserName
    default: bool = False
    """Whether the user's jobs go here that name no account; else the first account counts."""


class Account(_Association):
    """An account: a group of users who share what it is given."""

    name: AccountName
    parent: AccountName = ROOT
    """Account above it."""
    description: Line | None = None
    organization: Line | None = None
    users: tuple[AccountUser, ...] = ()

    @model_validator(mode="after")
    def _is_not_slurms_own(self) -> Self:
        if self.name == ROOT:
            raise cross_field("name", f"'{ROOT}': is Slurm's own; choose another")
        for name in duplicates(user.name for user in self.users):
            raise cross_field("users", f"'{name}' stands there twice; keep one")
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
    """A quality of service, which jobs ask for by `--qos`."""

    name: AccountName
    flags: tuple[Flag, ...] = ()
    preempt: tuple[AccountName, ...] = ()
    """QOS whose jobs make way; counts with slurm.preemption.type qos."""
    preempt_mode: Literal["cancel", "requeue", "suspend"] | None = None
    """What becomes of its jobs that make way; by default slurm.preemption.mode."""
    preempt_exempt_time: SlurmTime | None = None
    """Time that its jobs run before they make way."""
    grace_time: Seconds | None = None
    """How long jobs go on that make way, in seconds."""
    usage_factor: Factor | None = None
    """What use counts, against limits and shares; Slurm gives 1."""
    usage_threshold: Factor | None = None
    """Fair-share below which no job is taken or started."""
    limit_factor: Factor | None = None
    """What the limits in minutes (`…_tres_mins`) of associations are multiplied by."""
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
    """What a job must ask for at least."""


Removal = Annotated[str, AfterValidator(_thing)]
Enforced = Literal["associations", "limits", "qos", "safe"]


# --- Rules between them --------------------------------------------------------------------------


def check_names(accounts: Sequence[Account], qos: Sequence[Qos]) -> None:
    """Raises where a name stands twice, or names nothing."""
    for key, ones in (("accounts", accounts), ("qos", qos)):
        for name in duplicates(one.name for one in ones):
            raise cross_field(key, f"two are named '{name}'; give each a name of its own")
    known = {one.name for one in qos} | {NORMAL}
    for key, names in _qos_named(accounts, qos):
        for name in names:
            if name not in known:
                raise cross_field(key, f"'{name}' is no QOS; {known_names(name, known)}")
    parents = {account.name: account.parent for account in accounts}
    for index, account in enumerate(accounts):
        if account.parent not in (ROOT, *parents):
            raise cross_field(
                f"accounts[{index}].parent",
                f"'{account.parent}' is no account; {known_names(account.parent, parents)}",
            )
    _refuse_circle("accounts", {name: (parent,) for name, parent in parents.items()})
    _refuse_circle("qos", {one.name: one.preempt for one in qos})


def _qos_named(
    accounts: Iterable[Account], qos: Iterable[Qos]
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Names of QOS, with the key where they stand."""
    for i, account in enumerate(accounts):
        places: list[tuple[str, _Association]] = [(f"accounts[{i}]", account)]
        places += [(f"accounts[{i}].users[{j}]", user) for j, user in enumerate(account.users)]
        for key, place in places:
            yield f"{key}.qos", place.qos
            yield f"{key}.default_qos", (place.default_qos,) if place.default_qos else ()
    for i, one in enumerate(qos):
        yield f"qos[{i}].preempt", one.preempt


def _refuse_circle(key: str, above: Mapping[str, tuple[str, ...]]) -> None:
    """Raises where something leads to itself."""
    what = {"accounts": "below", "qos": "preempts, in the end,"}[key]
    for name in sorted(above):
        reached: set[str] = set()
        waiting = list(above[name])
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting.extend(above.get(at, ()))
        if name in reached:
            word = f"is {what} itself" if key == "accounts" else f"{what} itself"
            raise cross_field(key, f"'{name}' {word}; break the circle")


def check_defaults(accounts: Iterable[Account]) -> None:
    """Raises where a user has two default accounts."""
    found: dict[str, str] = {}
    for account in accounts:
        for user in account.users:
            if not user.default:
                continue
            if user.name in found:
                raise cross_field(
                    "accounts",
                    f"'{user.name}' has two defaults, '{found[user.name]}' and '{account.name}'; "
                    "keep one",
                )
            found[user.name] = account.name


def things(accounts: Iterable[Account], qos: Iterable[Qos]) -> set[str]:
    """All that the settings name, in the words of `remove_with_jobs`."""
    found = {f"qos {one.name}" for one in qos}
    for account in accounts:
        found.add(f"account {account.name}")
        found |= {f"user {user.name} account {account.name}" for user in account.users}
    return found
