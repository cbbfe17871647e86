"""Render Slurm's configuration files from the settings, and from files that the settings name."""

from collections.abc import Mapping
from pathlib import Path

from agents.blocks import block_lines, block_sizes
from agents.hostlist import compress
from components import conventions as c
from components.settings import Nodeset, Settings
from components.settings.slurm import COMMUNICATION, REPEATABLE, key_of
from components.slurmconf.accounting import (
    accounting_files,
    accounting_lines,
)
from components.slurmconf.accounts import wanted_accounts
from components.slurmconf.backup import (
    backup_environment,
    backup_files,
    dump_environment,
    dump_files,
)
from components.slurmconf.bridge import (
    bridge_address,
    bridge_rules,
    bridge_scripts,
    has_pods_partition,
    job_submit,
    pods_partition_lines,
    wanted_bridge,
)
from components.slurmconf.checks import AROUND_JOBS, around_jobs, node_checks
from components.slurmconf.containers import container_files, plugin_defaults
from components.slurmconf.isolation import node_options
from components.slurmconf.longchecks import (
    checks_partition_lines,
    preemption,
    wanted_long_checks,
)
from components.slurmconf.nodes import (
    gres_lines,
    max_node_count,
    memory_per_cpu,
    node_conf,
    node_line,
    node_shape,
    partition_line,
    real_memory,
)
from components.slurmconf.ondemand import cost_on_demand, power, wanted_on_demand
from components.slurmconf.scripts import SHIPPED, read_text, script_files, script_paths
from components.slurmconf.templates import render
from components.slurmconf.tokens import JWKS, lifetime_parameter, token_parameters
from components.slurmconf.wanted import wanted_nodes

__all__ = [
    "accounting_files",
    "backup_environment",
    "backup_files",
    "bridge_address",
    "bridge_rules",
    "config_digest",
    "config_files",
    "container_files",
    "cost_on_demand",
    "dump_environment",
    "dump_files",
    "max_node_count",
    "memory_per_cpu",
    "node_checks",
    "node_conf",
    "node_options",
    "node_shape",
    "real_memory",
    "script_files",
    "wanted_accounts",
    "wanted_bridge",
    "wanted_long_checks",
    "wanted_nodes",
    "wanted_on_demand",
]


def config_files(settings: Settings, root: Path = Path()) -> dict[str, str]:
    """Return the files that slurmctld reads and sends to every node and client, by name.

    Paths in the settings are relative to `root`. Raises `SettingsError` if a file cannot be used.
    """
    return _files(settings, root, config_digest(settings, root))


def config_digest(settings: Settings, root: Path = Path()) -> str:
    """Return a word that identifies the files of `config_files`.

    slurm.conf contains this word in SlurmctldParameters, where Slurm accepts any word. The deploy
    waits until `scontrol show config` shows the word, that is, until slurmctld uses the files.
    """
    return f"{c.PROJECT}={c.checksum(_files(settings, root, mark=''))}"


def _files(settings: Settings, root: Path, mark: str) -> dict[str, str]:
    slurm = settings.slurm
    files = {
        "cgroup.conf": render("cgroup.conf", {"confines": slurm.confines()}),
        "mpi.conf": render("mpi.conf", {}),
        "plugstack.conf": render("plugstack.conf", _plugstack(settings)),
        "slurm.conf": _slurm_conf(settings, mark),
        **script_files(settings, root, SHIPPED),
        **(AROUND_JOBS if around_jobs(settings) else {}),
        **bridge_scripts(settings),
    }
    if settings.gres_types():
        nodesets = sorted(settings.nodesets, key=lambda nodeset: nodeset.name)
        lines = [line for nodeset in nodesets for line in gres_lines(nodeset)]
        files["gres.conf"] = render("gres.conf", {"lines": lines})
    # If the site has its own lines for oci.conf, it uses another runtime, and the file has only
    # these lines.
    if settings.containers.enabled and "oci.conf" not in slurm.extra:
        program = f"{c.PROGRAMS}/start-container"
        files["oci.conf"] = render("oci.conf", {"program": program, "bundles": c.BUNDLES})
    # If labels define the topology, images/controller/gather-config adds topology.conf instead.
    if slurm.topology.groups():
        files["topology.conf"] = render("topology.conf", {"lines": _topology(settings)})
    if settings.rest.jwks:
        files[JWKS] = read_text("rest.jwks", settings.rest.jwks, root)
    if lua := job_submit(settings, root):
        files["job_submit.lua"] = lua
    for name, extra in slurm.extra.items():
        files[name] = files.get(name, "") + "".join(f"{line}\n" for line in extra)
    return dict(sorted(files.items()))


# --- slurm.conf ----------------------------------------------------------------------------------


def _slurm_conf(settings: Settings, mark: str) -> str:
    """Render slurm.conf without the keys in slurm.extra: `_files` appends those lines later."""
    rendered = render("slurm.conf", {**_slurm(settings), "mark": mark})
    lines = settings.slurm.extra.get("slurm.conf", ())
    replaced = {key for line in lines if (key := key_of(line))} - REPEATABLE
    return "".join(
        line for line in rendered.splitlines(keepends=True) if key_of(line) not in replaced
    )


def _slurm(settings: Settings) -> dict[str, object]:
    slurm = settings.slurm
    nodesets = sorted(settings.nodesets, key=lambda nodeset: nodeset.name)
    node_lines = [line for nodeset in nodesets if (line := node_line(nodeset))]
    return {
        "cluster_name": settings.cluster_name,
        "controller_pod": c.CONTROLLER_HOST,
        "controller_address": c.controller_address(settings.namespace, settings.cluster.domain),
        "slurmctld_port": c.SLURMCTLD_PORT,
        "slurmd_port": c.SLURMD_PORT,
        "slurmctld_parameters": _flags(slurm.slurmctld_parameters),
        "auth": settings.auth.type,
        "communication": ",".join(COMMUNICATION),
        "token_parameters": token_parameters(settings, c.SLURM_ETC) + lifetime_parameter(settings),
        "max_node_count": max_node_count(settings),
        "node_lines": node_lines,
        "absent_program": c.ABSENT_PROGRAM if any(_always_runs(one) for one in nodesets) else None,
        "power": power(settings),
        "nodesets": [nodeset.name for nodeset in nodesets],
        "gres_types": settings.gres_types(),
        "partition_lines": [
            *(partition_line(partition, settings) for partition in settings.queues()),
            *checks_partition_lines(settings),
            *pods_partition_lines(settings),
        ],
        "state_location": f"{c.CONTROLLER_SPOOL}/state",
        "worker_spool": c.WORKER_SPOOL,
        "slurm_run": c.SLURM_RUN,
        "slurm": slurm,
        "private_data": _private_data(settings),
        "scheduler_parameters": _flags(slurm.scheduler.effective()),
        "preempt_type": preemption(settings),
        "preempt_mode": _preempt_mode(settings),
        "tres_weights": ",".join(f"{name}={n}" for name, n in sorted(slurm.priority.tres.items())),
        "scripts": script_paths(settings),
        "bridge": settings.bridge is not None,
        "has_job_submit": bool(slurm.job_submit_lua or has_pods_partition(settings)),
        "checks_around_jobs": around_jobs(settings),
        "health_check_states": ",".join(state.upper() for state in settings.health.node_states),
        "health": settings.health,
        "accounting_lines": accounting_lines(settings),
    }


def _always_runs(nodeset: Nodeset) -> bool:
    return node_line(nodeset) is not None and nodeset.on_demand is None


def _private_data(settings: Settings) -> list[str]:
    """Return the values of PrivateData. Each value hides data, except `cloud`.

    `cloud` lets users see nodes on demand even while these nodes sleep.
    """
    on_demand = ("cloud",) if any(each.on_demand for each in settings.nodesets) else ()
    return sorted({*settings.slurm.private_data, *on_demand})


def _flags(parameters: Mapping[str, object]) -> str:
    """Write parameters in Slurm's format, sorted by name: a flag's name, or `name=value`."""
    return ",".join(
        name if value is True else f"{name}={value}"
        for name, value in sorted(parameters.items())
        if value is not False
    )


def _preempt_mode(settings: Settings) -> str:
    """Return the cluster's PreemptMode. Suspension in any partition or QOS requires GANG.

    Without GANG, slurmctld kills the jobs (slurm_job_preempt in preempt.c of Slurm 24.11).
    """
    chosen = settings.slurm.preemption
    if chosen.type == "none":
        return "CANCEL" if settings.long_checks.checks else "OFF"
    modes = {chosen.mode, *(partition.preempt_mode for partition in settings.partitions)}
    if chosen.type == "qos":
        modes |= {qos.preempt_mode for qos in settings.accounting.qos}
    return chosen.mode.upper() + (",GANG" if "suspend" in modes else "")


# --- Other files ---------------------------------------------------------------------------------


def _topology(settings: Settings) -> list[str]:
    """Return the lines of topology.conf, without switches and blocks that have no nodes.

    slurmctld does not start if the file has a switch or block without nodes. A switch or block of a
    nodeset with 0 replicas has no nodes.
    """
    topology = settings.slurm.topology
    nodes = {group.name: settings.nodes_of(group) for group in topology.groups()}
    if topology.kind == "block":
        blocks = {name: members for name, members in nodes.items() if members}
        sizes = topology.block_sizes or block_sizes(map(len, blocks.values()))
        return block_lines(blocks, sizes)
    below = {switch.name: switch.switches for switch in topology.switches}

    def has_nodes(name: str) -> bool:
        return bool(nodes.get(name)) or any(map(has_nodes, below[name]))

    used = filter(has_nodes, below)
    return [
        f"SwitchName={name} Switches={','.join(sorted(filter(has_nodes, below[name])))}"
        if below[name]
        else f"SwitchName={name} Nodes={compress(nodes[name])}"
        for name in used
    ]


_COMMANDS = (
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol"),
    *("sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat"),
)
"""Slurm's user commands in the jail. spank/Makefile lists the commands in containers."""


def _for_clients(settings: Settings) -> tuple[str, ...]:
    """Return the paths that Slurm's commands open in a job, both in the jail and in containers."""
    return (
        c.PROGRAMS,
        c.SLURM_PLUGIN_DIR,
        # Slurm's configuration is here; /etc/slurm in the jail is a link to this directory.
        c.SLURM_RUN,
        *((c.MUNGE_RUN,) if settings.auth.type == "munge" else ()),
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
    )


def _plugstack(settings: Settings) -> dict[str, object]:
    return {
        "plugin": c.SPANK_PLUGIN,
        "jail": c.JAIL,
        "scratch": c.WORKER_SCRATCH,
        "node": f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}",
        "spool": c.WORKER_SPOOL,
        "in_jail": (
            *_for_clients(settings),
            c.EXTRAUSERS,
            *((c.DIRECTORY_PIPES,) if settings.directory else ()),
            # The commands must have the daemons' version, even if the jail has another version.
            *(f"/usr/bin/{command}" for command in _COMMANDS),
        ),
        "container_plugin": c.CONTAINER_PLUGIN if settings.containers.enabled else None,
        "folder": c.PROGRAMS,
        "site": c.USER_IMAGES,
        "cache": settings.containers.cache,
        "defaults": plugin_defaults(settings.containers),
        "in_containers": (
            *_for_clients(settings),
            # Slurm's commands need the libraries in /usr of the jail.
            f"/usr={c.PROGRAMS}/usr",
            c.WORKER_SPOOL,
        ),
        # srun loads PMIx even without MPI, so a container needs a PMIx. If the image has its own
        # PMIx, the container keeps it, because it fits the image's MPI.
        "pmix": c.PMIX_DIR,
    }
