"""Observed and wanted state of QOS, accounts, and users in accounts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

ROOT = "root"
"""Slurm's own account, the ancestor of all other accounts."""


class Thing(NamedTuple):
    """Name of a QOS, an account, or a user in an account (for all partitions or a single one)."""

    kind: Literal["account", "qos", "user"]
    name: str
    account: str = ""
    """Account, if the thing is a user in an account, otherwise ""."""
    partition: str = ""
    """Partition, if the user's association applies only to one partition, otherwise ""."""

    def __str__(self) -> str:
        """Return the words of sacctmgr, such as `user ada account physics partition gpu`."""
        words = [f"{self.kind} {self.name}"]
        words += [f"account {self.account}"] if self.account else []
        words += [f"partition {self.partition}"] if self.partition else []
        return " ".join(words)

    def whole(self) -> "Thing":
        """Return the association of the same user and account for all partitions."""
        return self._replace(partition="")


_MARK = re.compile(r"\[slurmstack(?P<adopted> adopted)?:(?P<fields>[^\]]*)\] ?(?P<rest>.*)", re.S)


@dataclass(frozen=True)
class Mark:
    """Prefix of the comment of a thing that the settings manage. A QOS has this prefix in its
    description.

    The marks are the only record of managed things. The command that makes or changes a thing also
    writes the thing's mark, so each mark matches its thing.
    """

    fields: frozenset[str] = frozenset()
    """Names of the thing's fields in the settings. The agent clears a field that an edit removes
    from the settings."""
    adopted: bool = False
    """Whether the thing existed before it was in the settings. If so, the thing stays when it is
    removed from the settings."""

    def text(self, rest: str) -> str:
        """Return the comment: the mark, followed by people's own text."""
        whose = "slurmstack adopted" if self.adopted else "slurmstack"
        return f"[{' '.join([f'{whose}:', *sorted(self.fields)])}] {rest}".strip()


def read_mark(comment: str) -> tuple[Mark | None, str]:
    """Return the mark or None, and the rest of the comment."""
    match = _MARK.fullmatch(comment.strip())
    if match is None:
        return None, comment.strip()
    return Mark(frozenset(match["fields"].split()), bool(match["adopted"])), match["rest"].strip()


class State(NamedTuple):
    fields: Mapping[str, str]
    """Fields in canonical form without defaults. An account's parent is a field."""
    mark: Mark | None = None
    comment: str = ""
    """Comment without the mark."""


class Job(NamedTuple):
    """A pending, running or suspended job."""

    id: str
    user: str
    """User name, or uid if the name is unknown."""
    account: str
    qos: str
    partitions: str = ""
    """Names of partitions, separated by commas; a pending job may have several."""


@dataclass(frozen=True)
class Observed:
    """State of Slurm."""

    things: Mapping[Thing, State]
    jobs: tuple[Job, ...] = ()


class Wanted(BaseModel):
    """Wanted state, in the format of the settings file (`components.slurmconf.accounts`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: str
    qos: dict[str, dict[str, str]] = {}
    """Fields by name."""
    accounts: dict[str, dict[str, str]] = {}
    users: dict[str, dict[str, dict[str, str]]] = {}
    """Fields by user and account. The first account replaces a removed default account."""
    partitions: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    """Fields by user, account and partition, for the user's jobs in this partition only."""
    remove_with_jobs: frozenset[str] = frozenset()
    """Things that may be removed even if jobs use them, such as `user ada account physics`."""

    def things(self) -> dict[Thing, dict[str, str]]:
        found = {Thing("qos", name): fields for name, fields in self.qos.items()}
        # The settings always define an account's parent, because a tree could contain a cycle if
        # some parents came from Slurm.
        found |= {Thing("account", n): {"parent": ROOT, **f} for n, f in self.accounts.items()}
        for name, accounts in self.users.items():
            found |= {Thing("user", name, account): f for account, f in accounts.items()}
        for name, within in self.partitions.items():
            for account, partitions in within.items():
                found |= {Thing("user", name, account, p): f for p, f in partitions.items()}
        return found


def jobs_on(thing: Thing, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return the jobs that use a thing. They must end before the thing can be removed.

    A job whose user has no name in this pod matches no user here. sacctmgr itself finds such jobs
    before it removes a user or an account.
    """

    def is_on(job: Job) -> bool:
        match thing.kind:
            case "qos":
                return job.qos == thing.name
            case "account":
                return job.account == thing.name
        if thing.partition and thing.partition not in job.partitions.split(","):
            return False
        return (job.user, job.account) == (thing.name, thing.account)

    return tuple(job for job in jobs if is_on(job))


@dataclass(frozen=True)
class Action:
    sign: Literal["+", "~", "-"]
    thing: Thing
    changes: Mapping[str, str] = field(default_factory=dict)
    """New values; "" clears a field."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Current values of the fields that change."""
    comment: str | None = None
    """New comment with the mark, or None if the comment stays."""
    cancels: tuple[Job, ...] = ()
    """Jobs to cancel."""
    note: str = ""
    """Description of an action that changes no field."""
    new_default: str | None = None
    """Account that becomes the user's default, because the old default is removed."""
    interim: str | None = None
    """Account that is the user's default only during the removal, because Slurm removes no
    association while its account is the user's default account."""

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
