"""Settings of the bridge, with which Slurm schedules pods of Kubernetes."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from components.conventions import USER_IDS
from components.settings.accounts import AccountName
from components.settings.types import (
    DnsLabel,
    Model,
    Number,
    ObjectName,
    UserName,
    cross_field,
    duplicates,
)

Id = Annotated[int, Field(ge=USER_IDS.start, lt=USER_IDS.stop), Number]


class PodUser(Model):
    """A rule that lets pods of a namespace act as a Slurm user."""

    namespace: DnsLabel
    """Namespace of the pods. It must exist before the deploy."""
    service_account: ObjectName | None = None
    """Only pods with this service account; by default all pods of the namespace."""
    user: UserName
    """Name of the user."""
    uid: Id | None = None
    """User id, which is also the group id. Required for a user of the directory; other users have
    their uid in `users`."""
    accounts: tuple[AccountName, ...] = ()
    """Accounts that the pods may use, the default first; by default all accounts of the user."""

    may_set_priority: bool = False
    """Let the annotation `priority` of a pod replace the priority that Slurm computes; otherwise
    the annotation has no effect."""

    def place(self) -> str:
        return f"{self.namespace}/{self.service_account or '*'}"


class Bridge(Model):
    """Lets Slurm decide where and when pods run."""

    scheduler: DnsLabel = "slurm-bridge"
    """Pods with this `schedulerName` are scheduled by Slurm."""
    partition: DnsLabel | None = None
    """Partition of pods whose annotations name none; by default Slurm's default partition."""
    users: Annotated[tuple[PodUser, ...], Field(min_length=1)]
    """Which pods act as which users. All other pods with `scheduler` are refused."""
    replicas: Annotated[int, Field(ge=1, le=3), Number] = 1
    """Number of pods of the bridge. One acts, and the others wait to take its place."""

    @model_validator(mode="after")
    def _rules_are_unique(self) -> Self:
        rules = (f"{rule.place()} as {rule.user}" for rule in self.users)
        for rule in duplicates(rules):
            raise cross_field("users", f"two entries are for {rule}; keep one")
        return self
