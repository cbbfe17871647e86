"""Settings of the isolation of jobs from each other and from their node."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from components.settings.types import DeviceName, MemoryMiB, Model, Number, Path, cross_field


class Isolation(Model):
    """How the SPANK plugin isolates a nodeset's jobs; see slurmstack-chroot(8).

    A job always has its own /tmp, /var/tmp and /dev/shm, which are deleted after the job. A job
    sees only its own processes.
    """

    no_new_privileges: bool = True
    """In jobs, set-user-ID programs such as sudo, su and newgrp gain no privileges, and root has
    few capabilities."""
    private_devices: bool = True
    """In jobs, /dev has only the standard devices, the node's GPUs and its network devices."""
    devices: tuple[DeviceName, ...] = ()
    """Further devices in the node's /dev that jobs see, such as 'vfio' or 'tty*'."""
    tmp: MemoryMiB | None = None
    """Size of a job's /tmp in memory, such as '8GiB'; by default /tmp is on the node's disk."""
    var_tmp: MemoryMiB | None = None
    """Size of a job's /var/tmp in memory; by default /var/tmp is on the node's disk."""
    shm: MemoryMiB | None = None
    """Size of a job's /dev/shm; by default half the node's memory, for all jobs together."""
    processes: Annotated[int, Field(ge=16, le=4_194_304), Number] = 32_768
    """Limit of a job's processes and threads on a node, if the node can limit them. The effective
    limit is at most an eighth of the machine's kernel.pid_max, which is at most 4,194,304."""
    steps: Annotated[int, Field(ge=8, le=65_536), Number] | None = None
    """Limit of a job's steps on a node, including the batch step and the extern step. By default
    one step per 4 MiB that the node reserves for daemons, at most 256. Each step has a slurmstepd,
    which uses this reserve, not the job's memory."""
    overlay: bool = False
    """Keep a job's writes to the shared root private, and delete them after the job."""
    shared: tuple[Path, ...] = ("/home",)
    """Folders of the shared root that jobs still share when `overlay` is true."""

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> Self:
        given = self.model_fields_set
        if "shared" in given and not self.overlay:
            raise cross_field(
                "shared",
                f"{list(self.shared)}: has no effect without 'overlay: true'; set 'overlay' to "
                "true, or remove 'shared'",
            )
        if self.devices and not self.private_devices:
            raise cross_field(
                "devices",
                f"{list(self.devices)}: has no effect without 'private_devices: true'; set "
                "'private_devices' to true, or remove 'devices'",
            )
        return self

    def in_memory(self) -> int:
        """Return the memory in MiB that a job's directories may use."""
        return sum(size or 0 for size in (self.tmp, self.var_tmp, self.shm))
