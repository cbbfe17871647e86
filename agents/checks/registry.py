"""List all checks, with their readers, limits, nodes, occasions and effects.

The stack's settings, the documentation and the program on the nodes use these names and limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.checks import gpus, infiniband, kernel, system

Limit = float | int | bool | tuple[int, ...] | tuple[str, ...] | None
"""Threshold of a check. None means that the deploy takes the value from the nodeset, or that there
is no threshold."""


class When(StrEnum):
    """Occasions on which Slurm runs checks. An operator can run every check at any time."""

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
    """Drain the node. If the check failed in the prolog of a batch job, Slurm also requeues the
    job."""
    REPORT = "report"
    """Only report the failure, in the pod's log and in the output of `check-node`."""


class Lift(StrEnum):
    """Event after which the check usually passes again. The reconciler then lifts the drain."""

    ITSELF = "the fault ends"
    RESTART = "the pod restarts"
    REBOOT = "the machine restarts"
    REPLACE = "the machine is repaired or replaced"


@dataclass(frozen=True)
class Check:
    name: str
    says: str
    """Description of a node that passes the check."""
    reads: tuple[str, ...]
    """Names of the readers. `judge` gets their texts as its arguments, in this order."""
    judge: Callable[..., str | None]
    """Function that evaluates the texts. It gets the limits as keyword arguments; see
    `agents.checks.judging`."""
    lift: Lift
    nodes: Nodes = Nodes.ALL
    when: frozenset[When] = frozenset({When.INTERVAL})
    effect: Effect = Effect.DRAIN
    limits: Mapping[str, Limit] = field(default_factory=dict)
    hardware: bool = False
    """Whether the machine's hardware causes a failure. The reconciler then taints the machine."""
    silence_fails: bool = False
    """Whether the check fails if a reader times out. If not, the verdict is then `unknown`."""


_AROUND_JOBS = frozenset(When)
_BEFORE_JOBS = frozenset({When.PROLOG, When.INTERVAL})
"""Every check that drains a node must also run at intervals. Otherwise its drains would stay for
ever: the reconciler lifts a drain only after the check has run at an interval and not failed."""

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
            "on GPUs older than Ampere: no memory page waits for retirement, and at most "
            "`max_pages` pages are retired",
            ("nvidia-smi",),
            gpus.retired_pages,
            Lift.REBOOT,
            Nodes.GPUS,
            limits={"max_pages": 60},
            hardware=True,
        ),
        Check(
            "gpu-row-remap",
            "on Ampere and later GPUs: no memory row waits for remapping, and no remapping failed",
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
            # Do not drain the node, because a GPU that is slow for a moment is not faulty.
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
            "no GPU is in use while no job uses it",
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
            "no InfiniBand port has more errors per hour than the limits allow",
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
            # Do not drain the node, because jobs without images do not need the cache.
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
            "the jail is mounted and writable, and has the generation that `jail.refresh` sets",
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
