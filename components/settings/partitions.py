"""Settings of partitions: queues over nodesets."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.nodesets import refuse_owned
from components.settings.types import (
    DnsLabel,
    MemoryMiB,
    Model,
    Number,
    ParameterName,
    Scalar,
    Seconds,
    SlurmTime,
    Uint16,
    UserName,
    Word,
    cross_field,
    parse_time,
)

_OWNED_PARAMETERS: Mapping[str, str] = {
    "default": "use default",
    "nodes": "use nodesets",
    "partitionname": "use name",
}
"""Partition parameters, in lower case, that the stack derives from other settings, and what to use
instead."""

Nodes = Annotated[int, Field(ge=0, le=1_000_000), Number]


class Partition(Model):
    """A partition: a queue over some nodesets."""

    name: DnsLabel
    nodesets: Annotated[tuple[str, ...], Field(min_length=1)]
    default: bool = False
    """Make this the default partition of jobs."""
    state: Literal["up", "down", "drain", "inactive"] = "up"
    """up: accepts and starts jobs; down: only accepts jobs; drain: only starts jobs; inactive:
    neither."""
    max_time: SlurmTime = "UNLIMITED"
    """Longest time limit of a job, such as '2-00:00:00'."""
    default_time: SlurmTime | None = None
    """Time limit of a job that does not request one; by default max_time."""
    min_nodes: Nodes | None = None
    """Minimum number of nodes of a job."""
    max_nodes: Annotated[int, Field(ge=1, le=1_000_000), Number] | None = None
    """Maximum number of nodes of a job; by default all."""
    memory_per_gpu: MemoryMiB | None = None
    """Memory per GPU of a job that requests no memory. If all nodes have GPUs, the default is a
    node's memory divided by the number of its GPUs. If nodes differ, the smallest result counts."""
    memory_per_cpu: MemoryMiB | None = None
    """Memory per CPU of a job that requests no memory, such as '2GiB'. The default is a node's
    memory divided by the number of its CPUs. If nodes differ, the smallest result counts."""
    priority_tier: Uint16 | None = None
    """slurmctld considers jobs of higher tiers first. With slurm.preemption.type: partition_prio,
    these jobs may preempt jobs of lower tiers."""
    priority_job_factor: Uint16 | None = None
    """Factor of the partition in the job's multifactor priority."""
    preempt_mode: Literal["off", "cancel", "requeue", "suspend"] | None = None
    """Action on the partition's jobs when they are preempted; by default slurm.preemption.mode."""
    grace_time: Seconds | None = None
    """Seconds that the partition's jobs may continue after they are preempted."""
    qos: Word | None = None
    """QOS with the limits of the partition; requires accounting."""
    allow_qos: tuple[Word, ...] = ()
    """QOS that may use the partition; by default all. Requires accounting."""
    deny_qos: tuple[Word, ...] = ()
    """QOS that may not use the partition. Requires accounting."""
    allow_accounts: tuple[Word, ...] = ()
    """Accounts that may use the partition; by default all."""
    allow_groups: tuple[UserName, ...] = ()
    """Groups whose members may use the partition; by default all."""
    hidden: bool = False
    """Hide the partition from users, unless a command asks for all partitions."""
    exclusive: bool = False
    """Allocate whole nodes to jobs."""
    over_subscribe: Literal["no", "yes", "force"] = "no"
    """Let jobs share CPUs. no: never; yes: jobs that request it; force: always."""
    parameters: dict[ParameterName, Scalar] = {}
    """Further parameters of slurm.conf's PartitionName lines; they override those of the stack."""

    @model_validator(mode="after")
    def _name_is_free(self) -> Self:
        # slurm.conf(5): PartitionName=DEFAULT sets defaults of the following partitions.
        if self.name == "default":
            raise cross_field(
                "name",
                "'default': Slurm reserves this name; choose another name. To make a partition "
                "the default, set 'default: true' in it",
            )
        return self

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        if self.default_time and parse_time(self.default_time) > parse_time(self.max_time):
            raise cross_field(
                "default_time",
                f"'{self.default_time}': expected at most max_time of the partition, which "
                f"is {self.max_time}; lower 'default_time', or raise 'max_time'",
            )
        if self.min_nodes and self.max_nodes and self.min_nodes > self.max_nodes:
            raise cross_field(
                "min_nodes",
                f"{self.min_nodes}: expected at most max_nodes of the partition, which is "
                f"{self.max_nodes}; lower 'min_nodes', or raise 'max_nodes'",
            )
        if self.allow_qos and self.deny_qos:
            raise cross_field(
                "deny_qos",
                f"{', '.join(self.deny_qos)}: cannot be combined with allow_qos, because Slurm "
                "uses only one of the two lists; keep only one",
            )
        if self.exclusive and self.over_subscribe != "no":
            raise cross_field(
                "over_subscribe",
                f"{self.over_subscribe}: conflicts with 'exclusive: true', which allocates "
                "whole nodes to jobs; remove one of the two settings",
            )
        return self

    @model_validator(mode="after")
    def _parameters_are_free(self) -> Self:
        refuse_owned(self.parameters, _OWNED_PARAMETERS)
        return self
