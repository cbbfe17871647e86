"""Read the settings of the bridge."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agents import wanted


class Rule(BaseModel):
    """Lets pods of a namespace act as a Slurm user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str
    service_account: str | None
    """Only pods with this service account; None: all pods of the namespace."""
    user: str
    uid: int
    gid: int
    """The user's own group."""
    groups: Mapping[str, int] = {}
    """Further groups of the user, with their gids."""
    accounts: tuple[str, ...]
    """Accounts that the pods may use. The first is the default. Empty: all accounts of the user."""
    may_set_priority: bool
    """Whether the annotation `priority` sets the job's priority."""

    def covers(self, namespace: str, service_account: str) -> bool:
        return self.namespace == namespace and self.service_account in (None, service_account)


class Wanted(BaseModel):
    """All settings, in the format of `components.slurmconf.bridge`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: str
    """`schedulerName` of the pods that the bridge schedules."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of which the bridge schedules all pods."""
    default_memory: int
    """MiB of a container without request and limit."""
    partition: str | None
    """Partition of pods whose annotations name none. None: Slurm's default partition."""
    feature: str
    """Feature of the Slurm nodes whose machines run pods."""
    rules: tuple[Rule, ...]

    def rules_for(self, namespace: str, service_account: str) -> Iterator[Rule]:
        return (rule for rule in self.rules if rule.covers(namespace, service_account))


def read(path: Path) -> Wanted:
    """Read the settings. Raises `WantedError` if the file is unusable."""
    return wanted.read(path, Wanted)
