"""How far jobs are kept apart from each other and from their node."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from components.settings.types import DeviceName, MemoryMiB, Model, Number, Path, cross_field


class Isolation(Model):
    """What the SPANK plugin gives each job of a nodeset; see slurmstack-chroot(8).

    A job always has its own /tmp, /var/tmp and /dev/shm, which are gone after it, and sees no
    process but its own.
    """

    no_new_privileges: bool = True
    """sudo, su, newgrp and the like are without effect in jobs, and root's have few rights."""
    private_devices: bool = True
    """/dev holds what every program needs and the node's GPUs and network devices, no more."""
    devices: tuple[DeviceName, ...] = ()
    """Further devices of the node's /dev that jobs see, as 'vfio' or 'tty*'."""
    tmp: MemoryMiB | None = None
    """Size of a job's /tmp, which is then in memory, as '8GiB'; by default on the node's disk."""
    var_tmp: MemoryMiB | None = None
    """The same of /var/tmp."""
    shm: MemoryMiB | None = None
    """Size of a job's /dev/shm; by default what the node has for all jobs."""
    processes: Annotated[int, Field(ge=16, le=4_194_304), Number] = 32_768
    """Processes and threads that a job may have at once on a node, where that can be limited; never
    more than an eighth of what the machine's kernel can have. (No kernel has more than 4,194,304.)
    """
    steps: Annotated[int, Field(ge=8, le=65_536), Number] = 256
    """Steps that a job may have at once on a node, its script and Slurm's own step included. Each
    has a slurmstepd, whose memory is not the job's."""
    overlay: bool = False
    """Jobs write to the shared root for themselves only, and what they wrote goes with them."""
    shared: tuple[Path, ...] = ("/home",)
    """Folders of the shared root that stay shared with `overlay`."""

    @model_validator(mode="after")
    def _options_count(self) -> Self:
        given = self.model_fields_set
        if "shared" in given and not self.overlay:
            raise cross_field("shared", f"{list(self.shared)}: counts only with overlay: true")
        if self.devices and not self.private_devices:
            raise cross_field(
                "devices", f"{list(self.devices)}: counts only with private_devices: true"
            )
        return self

    def in_memory(self) -> int:
        """Memory that a job's directories may take, in MiB."""
        return sum(size or 0 for size in (self.tmp, self.var_tmp, self.shm))
