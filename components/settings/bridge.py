"""Settings of the bridge, with which Slurm schedules pods of Kubernetes."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from components.conventions import USER_IDS
from components.settings.accounts import AccountName
from components.settings.types import (
    DnsLabel,
    MemoryMiB,
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
    namespaces: tuple[DnsLabel, ...] = ()
    """Namespaces of which Slurm schedules all pods, whatever their `schedulerName` is."""
    default_memory: MemoryMiB = Field("512MiB", validate_default=True)
    """MiB of memory of each container that has neither a request nor a limit."""
    partition: DnsLabel | None = None
    """Partition of pods whose annotations name none; by default 'pods', if a nodeset has
    'pods_only', or else Slurm's default partition."""
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

    @model_validator(mode="after")
    def _namespaces_have_users(self) -> Self:
        known = {rule.namespace for rule in self.users}
        for index, name in enumerate(self.namespaces):
            if name not in known:
                raise cross_field(
                    f"namespaces[{index}]",
                    f"'{name}': no rule in 'users' covers this namespace, so all its pods would "
                    "be refused; add a rule, or remove the namespace",
                )
        for name in duplicates(self.namespaces):
            raise cross_field("namespaces", f"'{name}' occurs twice; keep one")
        return self
