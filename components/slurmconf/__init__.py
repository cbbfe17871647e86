"""Slurm's configuration files as pure functions of the settings."""

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from components import conventions as c
from components.settings import Nodeset, Partition, Settings

_MIN_NODE_COUNT = 1024

_templates = Environment(
    loader=PackageLoader("components.slurmconf", "."),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701  # Slurm's files are no HTML
)


def config_files(settings: Settings) -> dict[str, str]:
    """The files that slurmctld reads and hands to every node and client, by name."""
    return _files(settings, config_mark(settings))


def config_mark(settings: Settings) -> str:
    """What tells these files from others, wherever Slurm shows its configuration.

    Slurm takes any word among SlurmctldParameters, and shows them in `scontrol show config`.
    """
    return f"{c.PROJECT}={c.checksum(_files(settings, mark=''))}"


def _files(settings: Settings, mark: str) -> dict[str, str]:
    return {
        "cgroup.conf": _render("cgroup.conf", {}),
        "plugstack.conf": _render("plugstack.conf", _plugstack()),
        "slurm.conf": _render("slurm.conf", {**_slurm(settings), "mark": mark}),
    }


def node_conf(nodeset: Nodeset) -> str:
    """What a node of this nodeset says of itself when it registers (`slurmd -Z --conf`)."""
    features = ",".join((nodeset.name, *nodeset.features))
    return f"CPUs={nodeset.cpus} RealMemory={real_memory(nodeset)} Feature={features}"


def real_memory(nodeset: Nodeset) -> int:
    """Memory that Slurm may give to jobs on a node, in MiB.

    The pod's limit also holds slurmd, one slurmstepd per step, and whatever jobs write to
    memory-backed /dev/shm, so an eighth of it, at most 4 GiB, is kept back.
    """
    return nodeset.memory - min(nodeset.memory // 8, 4096)


def memory_per_cpu(partition: Partition, settings: Settings) -> int:
    """Memory in MiB that a job gets for each CPU unless it asks, by the partition's leanest nodes.

    Without it Slurm would give every job all memory of its node, and so the node to one job.
    """
    return min(
        real_memory(nodeset) // nodeset.cpus
        for nodeset in settings.nodesets
        if nodeset.name in partition.nodesets
    )


def max_node_count(settings: Settings) -> int:
    """Room for dynamic nodes: the next power of two over twice the nodes, at least 1024."""
    nodes = sum(nodeset.replicas for nodeset in settings.nodesets)
    return max(_MIN_NODE_COUNT, 1 << (2 * nodes).bit_length())


def _slurm(settings: Settings) -> dict[str, object]:
    return {
        "cluster_name": settings.cluster_name,
        "controller_pod": c.CONTROLLER_HOST,
        "controller_address": c.controller_address(settings.namespace),
        "slurmctld_port": c.SLURMCTLD_PORT,
        "slurmd_port": c.SLURMD_PORT,
        "max_node_count": max_node_count(settings),
        "nodesets": sorted(nodeset.name for nodeset in settings.nodesets),
        "partitions": settings.queues(),
        "memory_per_cpu": {
            partition.name: memory_per_cpu(partition, settings) for partition in settings.queues()
        },
        "state_location": f"{c.CONTROLLER_SPOOL}/state",
        "worker_spool": c.WORKER_SPOOL,
        "slurm_run": c.SLURM_RUN,
    }


def _plugstack() -> dict[str, object]:
    return {
        "plugin": c.SPANK_PLUGIN,
        "jail": c.JAIL,
        "scratch": c.WORKER_SCRATCH,
        # The batch script and the fetched configuration are in the spool directory.
        "writable": (c.WORKER_SPOOL, c.MUNGE_RUN),
        # What slurmstepd and the clients inside a job still open after the change of root.
        "readable": (
            c.SPANK_DIR,
            c.SLURM_PLUGIN_DIR,
            c.EXTRAUSERS,
            "/etc/hosts",
            "/etc/resolv.conf",
        ),
    }


def _render(name: str, values: Mapping[str, object]) -> str:
    return _templates.get_template(f"{name}.j2").render(values)
