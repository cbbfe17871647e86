"""What there is and what is wanted: QOS, accounts, and users in accounts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

ROOT = "root"
"""The account above all, which Slurm makes itself."""


class Thing(NamedTuple):
    """Names one QOS, one account, or one user in one account; orders them as they come to be."""

    kind: Literal["account", "qos", "user"]
    name: str
    account: str = ""
    """Of a user."""

    def __str__(self) -> str:
        """As sacctmgr's words, `user ada account physics`."""
        return f"{self.kind} {self.name}" + (f" account {self.account}" if self.account else "")


_MARK = re.compile(r"\[slurmstack(?P<adopted> adopted)?:(?P<fields>[^\]]*)\] ?(?P<rest>.*)", re.S)


@dataclass(frozen=True)
class Mark:
    """What a thing's comment (a QOS's description) begins with when the settings look after it.

    It is the only record of what is ours, and it is written by the very command that makes or
    changes a thing, so that there is no moment at which the two disagree.
    """

    fields: frozenset[str] = frozenset()
    """The fields that the settings name, which are cleared when they no longer do."""
    adopted: bool = False
    """It was there before the settings named it: it is let go in the end, not removed."""

    def text(self, rest: str) -> str:
        """The comment, with what people have written behind the mark."""
        whose = "slurmstack adopted" if self.adopted else "slurmstack"
        return f"[{' '.join([f'{whose}:', *sorted(self.fields)])}] {rest}".strip()


def read_mark(comment: str) -> tuple[Mark | None, str]:
    """The mark, if there is one, and what else the comment says."""
    match = _MARK.fullmatch(comment.strip())
    if match is None:
        return None, comment.strip()
    return Mark(frozenset(match["fields"].split()), bool(match["adopted"])), match["rest"].strip()


class State(NamedTuple):
    """One thing as Slurm has it."""

    fields: Mapping[str, str]
    """In canonical form, without those that are at their default; an account's parent as well."""
    mark: Mark | None = None
    comment: str = ""
    """Without the mark."""


class Job(NamedTuple):
    """A job that waits, runs or is suspended."""

    id: str
    user: str
    """Its number, where nobody knows the name."""
    account: str
    qos: str


@dataclass(frozen=True)
class Observed:
    """All that Slurm has."""

    things: Mapping[Thing, State]
    jobs: tuple[Job, ...] = ()
    partitioned: frozenset[Thing] = frozenset()
    """Users who have, in an account, associations with single partitions: made by people."""


class Wanted(BaseModel):
    """What the settings want, as its file says; see `components.slurmconf.accounts`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: str
    qos: dict[str, dict[str, str]] = {}
    """Fields by name."""
    accounts: dict[str, dict[str, str]] = {}
    users: dict[str, dict[str, dict[str, str]]] = {}
    """Fields by name and account; the first account counts where the default one goes."""
    remove_with_jobs: frozenset[str] = frozenset()
    """What may be removed although jobs are on it, such as `user ada account physics`."""

    def things(self) -> dict[Thing, dict[str, str]]:
        found = {Thing("qos", name): fields for name, fields in self.qos.items()}
        # Where an account stands is always theirs to say: half a tree of one and half of another
        # could be a circle.
        found |= {Thing("account", n): {"parent": ROOT, **f} for n, f in self.accounts.items()}
        for name, accounts in self.users.items():
            found |= {Thing("user", name, account): f for account, f in accounts.items()}
        return found


def jobs_on(thing: Thing, jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs that a thing cannot be removed without.

    That of somebody whose name is unknown here is nobody's; sacctmgr, which looks once more before
    it removes a user or an account, knows better.
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
    """The values that are there, of the fields that change."""
    comment: str | None = None
    """The new comment, mark included; None where it stays."""
    cancels: tuple[Job, ...] = ()
    """Jobs that go with it."""
    note: str = ""
    """What it is about, where no field changes."""
    new_default: str | None = None
    """Account that becomes the user's default, since this one was and goes."""

    def __str__(self) -> str:
        told = [_told(name, self.before.get(name), to) for name, to in sorted(self.changes.items())]
        if self.note:
            told.append(self.note)
        if self.cancels:
            told.append(f"with its jobs ({len(self.cancels)})")
        if self.new_default:
            told.append(f"default account becomes {self.new_default}")
        return f"{self.sign} {self.thing}" + (f": {', '.join(told)}" if told else "")


def _told(name: str, before: str | None, to: str) -> str:
    if not before:
        return f"{name}={to or 'none'}"
    return f"{name}={before} → {to or 'none'}"
