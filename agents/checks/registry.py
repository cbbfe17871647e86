"""List all checks, with their readers, limits, nodes, occasions and effects.

The settings, the documentation and the runner use these names and limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.checks import gpus, infiniband, kernel, system

Limit = float | int | bool | tuple[int, ...] | tuple[str, ...] | None
"""Threshold. None means the nodeset's own value, or no threshold."""


class When(StrEnum):
    """Occasions on which Slurm runs checks. On demand, an operator can run every check."""

    PROLOG = "prolog"
    EPILOG = "epilog"
    INTERVAL = "interval"


class Nodes(StrEnum):
    """Nodesets to which a check applies by default."""

    ALL = "all"
    GPUS = "with NVIDIA GPUs"
    INFINIBAND = "with the feature infiniband"
    MUNGE = "where Slurm authenticates users by munge"


class Effect(StrEnum):
    """Effect of a failed check."""

    DRAIN = "drain"
    """Drain the node. If a check of a prolog failed, Slurm requeues a batch job."""
    REPORT = "report"
    """Report the failure only in the pod's log and on demand."""


class Lift(StrEnum):
    """Smallest event after which the check usually passes again, so that the drain is lifted."""

    ITSELF = "the fault ends"
    RESTART = "the pod restarts"
    REBOOT = "the machine restarts"
    REPLACE = "the machine is repaired or replaced"


@dataclass(frozen=True)
class Check:
    name: str
    says: str
    """State of a fit node."""
    reads: tuple[str, ...]
    """Names of the readers whose texts are the judge's arguments, in this order."""
    judge: Callable[..., str | None]
    """Function of the texts, and of the limits by name; see `agents.checks.judging`."""
    lift: Lift
    nodes: Nodes = Nodes.ALL
    when: frozenset[When] = frozenset({When.INTERVAL})
    effect: Effect = Effect.DRAIN
    limits: Mapping[str, Limit] = field(default_factory=dict)
    hardware: bool = False
    """Whether the machine's hardware causes a failure. The reconciler then taints the machine."""
    silence_fails: bool = False
    """Whether a reader's timeout is a failure. Otherwise the verdict is unknown."""


_AROUND_JOBS = frozenset(When)
_BEFORE_JOBS = frozenset({When.PROLOG, When.INTERVAL})
"""A check that drains a node must also run at the interval. The reconciler lifts its drain only
after an interval pass in which the check did not fail."""

CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check(
            "gpu-present",
            "the driver answers, and no GPU requests a reset",
            ("nvidia-smi",),
            gpus.present,
            Lift.REBOOT,
            Nodes.GPUS,
            _AROUND_JOBS,
            hardware=True,
        ),
        Check(
            "gpu-count",
            "all GPUs of the nodeset are present",
            ("nvidia-smi",),
            gpus.count,
            Lift.REBOOT,
            Nodes.GPUS,
            _AROUND_JOBS,
            limits={"count": None},
            hardware=True,
        ),
        Check(
            "gpu-ecc",
            "no uncorrectable memory errors since the driver was loaded",
            ("nvidia-smi",),
            gpus.ecc,
            Lift.REBOOT,
            Nodes.GPUS,
            _AROUND_JOBS,
            limits={"max_uncorrectable": 0},
            hardware=True,
        ),
        Check(
            "gpu-retired-pages",
            "no page waits for retirement, and few are retired (before Ampere)",
            ("nvidia-smi",),
            gpus.retired_pages,
            Lift.REBOOT,
            Nodes.GPUS,
            limits={"max_pages": 60},
            hardware=True,
        ),
        Check(
            "gpu-row-remap",
            "no row waits for remapping, and no remapping failed (from Ampere on)",
            ("nvidia-smi",),
            gpus.row_remap,
            Lift.REBOOT,
            Nodes.GPUS,
            _AROUND_JOBS,
            hardware=True,
        ),
        Check(
            "gpu-xid",
            "the kernel's log has no Xid after which a GPU requires a reset or a repair",
            ("kernel",),
            kernel.xid,
            Lift.REBOOT,
            Nodes.GPUS,
            _AROUND_JOBS,
            limits={"xids": kernel.XIDS},
            hardware=True,
        ),
        Check(
            "gpu-throttle",
            "neither heat nor a lack of power slows a GPU down",
            ("nvidia-smi",),
            gpus.throttle,
            Lift.ITSELF,
            Nodes.GPUS,
            # A single slow moment is not a fault.
            effect=Effect.REPORT,
            hardware=True,
        ),
        Check(
            "gpu-nvlink",
            "all NVLink links are up, and the GPUs have joined the fabric",
            ("nvlink", "nvidia-smi"),
            gpus.nvlink,
            Lift.REBOOT,
            Nodes.GPUS,
            _BEFORE_JOBS,
            limits={"links": None},
            hardware=True,
        ),
        Check(
            "gpu-power",
            "no GPU has a lower power limit than other GPUs of its model",
            ("nvidia-smi",),
            gpus.power,
            Lift.REBOOT,
            Nodes.GPUS,
            limits={"min_watts": None},
            hardware=True,
        ),
        Check(
            "gpu-temperature",
            "no GPU has reached its slowdown temperature",
            ("nvidia-smi",),
            gpus.temperature,
            Lift.ITSELF,
            Nodes.GPUS,
            limits={"max_celsius": None},
            hardware=True,
        ),
        Check(
            "gpu-busy",
            "no GPU is in use without a job",
            ("nvidia-smi", "processes", "job", "gres"),
            gpus.busy,
            Lift.RESTART,
            Nodes.GPUS,
            _AROUND_JOBS,
            limits={"max_mib": 1024, "shared": False},
        ),
        Check(
            "infiniband-link",
            "all InfiniBand ports are up",
            ("infiniband",),
            infiniband.link,
            Lift.REBOOT,
            Nodes.INFINIBAND,
            _BEFORE_JOBS,
            limits={"ports": None, "min_gbits": None},
            hardware=True,
        ),
        Check(
            "infiniband-errors",
            "few errors on InfiniBand ports within an hour",
            ("infiniband",),
            infiniband.errors,
            Lift.REPLACE,
            Nodes.INFINIBAND,
            limits={"max_downed": 1, "max_errors": 1000},
            hardware=True,
        ),
        Check(
            "disk",
            "no file system is full, out of inodes or read-only",
            ("disks",),
            system.disk,
            Lift.RESTART,
            limits={
                "paths": ("/", "/tmp", "/var/spool/slurmd", "/var/spool/slurmstack"),  # noqa: S108
                "max_percent": 95,
                "max_inodes_percent": 95,
            },
        ),
        Check(
            "image-cache",
            "the local disk of users' image caches is present, writable and not full",
            ("image-cache",),
            system.image_cache,
            Lift.ITSELF,
            # Jobs without images do not need the cache.
            effect=Effect.REPORT,
            limits={"max_percent": 95},
        ),
        Check(
            "memory",
            "an idle node has most of its memory free",
            ("memory", "processes"),
            system.memory,
            Lift.RESTART,
            limits={"min_percent": 80},
        ),
        Check(
            "clock",
            "the clock agrees with that of the jail's storage",
            ("jail",),
            system.clock,
            Lift.ITSELF,
            limits={"max_offset": 2},
        ),
        Check(
            "jail",
            "the jail is mounted and writable, and has the generation of the settings",
            ("jail",),
            system.jail,
            Lift.RESTART,
            limits={"generation": None},
            silence_fails=True,
        ),
        Check(
            "munge",
            "munged answers",
            ("munge",),
            system.munge,
            Lift.RESTART,
            Nodes.MUNGE,
            silence_fails=True,
        ),
        Check(
            "leftovers",
            "ended jobs have left nothing in /tmp and /dev/shm",
            ("leftovers", "processes"),
            system.leftovers,
            Lift.RESTART,
            effect=Effect.REPORT,
            limits={"max_shm_mib": 1024, "min_age": 600},
        ),
        Check(
            "stuck-processes",
            "no process hangs in the kernel",
            ("processes",),
            system.stuck,
            Lift.REBOOT,
            limits={"min_seconds": 30},
        ),
        Check(
            "kernel-log",
            "the kernel's log reports no broken hardware",
            ("kernel",),
            kernel.log,
            Lift.REBOOT,
            limits={"patterns": kernel.PATTERNS},
            hardware=True,
        ),
    )
}
