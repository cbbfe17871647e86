"""Observed and wanted state: QOS, accounts, and users in accounts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

ROOT = "root"
"""Account above all others, which Slurm makes itself."""


class Thing(NamedTuple):
    """Name of one QOS, one account, or one user in one account."""

    kind: Literal["account", "qos", "user"]
    name: str
    account: str = ""
    """Account of a user."""

    def __str__(self) -> str:
        """Return the words of sacctmgr, such as `user ada account physics`."""
        return f"{self.kind} {self.name}" + (f" account {self.account}" if self.account else "")


_MARK = re.compile(r"\[slurmstack(?P<adopted> adopted)?:(?P<fields>[^\]]*)\] ?(?P<rest>.*)", re.S)


@dataclass(frozen=True)
class Mark:
    """Prefix of a thing's comment (a QOS's description) if the settings manage the thing.

    It is the only record of what the settings manage. The command that makes or changes the thing
    also writes the mark, so the two never disagree.
    """

    fields: frozenset[str] = frozenset()
    """Fields that the settings name. They are cleared when the settings no longer name them."""
    adopted: bool = False
    """Whether the thing is older than its settings. Then it is released in the end, not removed."""

    def text(self, rest: str) -> str:
        """Return the comment: the mark, and then what people have written."""
        whose = "slurmstack adopted" if self.adopted else "slurmstack"
        return f"[{' '.join([f'{whose}:', *sorted(self.fields)])}] {rest}".strip()


def read_mark(comment: str) -> tuple[Mark | None, str]:
    """Return the mark or None, and the rest of the comment."""
    match = _MARK.fullmatch(comment.strip())
    if match is None:
        return None, comment.strip()
    return Mark(frozenset(match["fields"].split()), bool(match["adopted"])), match["rest"].strip()


class State(NamedTuple):
    """State of one thing in Slurm."""

    fields: Mapping[str, str]
    """Fields in canonical form, with an account's parent, without those at their default."""
    mark: Mark | None = None
    comment: str = ""
    """Comment without the mark."""


class Job(NamedTuple):
    """A pending, running or suspended job."""

    id: str
    user: str
    """Name, or uid if the name is unknown."""
    account: str
    qos: str


@dataclass(frozen=True)
class Observed:
    """State of Slurm."""

    things: Mapping[Thing, State]
    jobs: tuple[Job, ...] = ()
    partitioned: frozenset[Thing] = frozenset()
    """Users, by account, who have associations with single partitions. Only people make these."""


class Wanted(BaseModel):
    """Wanted state, as in the file with the settings; see `components.slurmconf.accounts`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: str
    qos: dict[str, dict[str, str]] = {}
    """Fields by name."""
    accounts: dict[str, dict[str, str]] = {}
    users: dict[str, dict[str, dict[str, str]]] = {}
    """Fields by name and account. The first account replaces a default account that is removed."""
    remove_with_jobs: frozenset[str] = frozenset()
    """Things that may be removed although jobs use them, such as `user ada account physics`."""

    def things(self) -> dict[Thing, dict[str, str]]:
        found = {Thing("qos", name): fields for name, fields in self.qos.items()}
        # The settings always decide an account's parent: a tree that comes from two sources could
        # contain a cycle.
        found |= {Thing("account", n): {"parent": ROOT, **f} for n, f in self.accounts.items()}
        for name, accounts in self.users.items():
            found |= {Thing("user", name, account): f for account, f in accounts.items()}
        return found


def jobs_on(thing: Thing, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the jobs that use a thing, which cannot be removed without them.

    A job of a user whose name is unknown here matches no user. sacctmgr finds it: it checks again
    before it removes a user or an account.
    """

    def is_on(job: Job) -> bool:
        match thing.kind:
            case "qos":
                return job.qos == thing.name
            case "account":
                return job.account == thing.name
        return (job.user, job.account) == (thing.name, thing.account)

    return tuple(job for job in jobs if is_on(job))


@dataclass(frozen=True)
class Action:
    """One step of a plan."""

    sign: Literal["+", "~", "-"]
    thing: Thing
    changes: Mapping[str, str] = field(default_factory=dict)
    """New values; "" clears a field."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Present values of the fields that change."""
    comment: str | None = None
    """New comment with the mark; None if it stays."""
    cancels: tuple[Job, ...] = ()
    """Jobs to cancel with it."""
    note: str = ""
    """Description, if no field changes."""
    new_default: str | None = None
    """Account that becomes the user's default, because the present default is removed."""

    def __str__(self) -> str:
        details = [
            _describe(name, self.before.get(name), to) for name, to in sorted(self.changes.items())
        ]
        if self.note:
            details.append(self.note)
        if self.cancels:
            details.append(f"jobs to cancel: {len(self.cancels)}")
        if self.new_default:
            details.append(f"default account becomes {self.new_default}")
        return f"{self.sign} {self.thing}" + (f": {', '.join(details)}" if details else "")


def _describe(name: str, before: str | None, to: str) -> str:
    if not before:
        return f"{name}={to or 'none'}"
    return f"{name}={before} → {to or 'none'}"
