"""Render the lines of Slurm's configuration for nodes and partitions."""

from collections.abc import Mapping

from agents.hostlist import compress
from components import conventions as c
from components.settings import Gpus, Nodeset, Partition, Settings

_SHAPE = ("cpus", "sockets", "corespersocket", "threadspercore", "gres")
_NOWHERE = "192.0.2.1"
"""Address that no host has (RFC 5737). It needs no DNS lookup."""


def node_conf(nodeset: Nodeset) -> str:
    """Return the description with which a node registers in Slurm (`slurmd -Z --conf`)."""
    own = (
        *((c.FEATURE_ON_DEMAND,) if nodeset.on_demand else ()),
        *((c.FEATURE_PODS,) if nodeset.runs_pods else ()),
    )
    features = ",".join((nodeset.name, *sorted((*nodeset.features, *own))))
    ours: dict[str, object] = {
        "CPUs": nodeset.cpus,
        **_layout(nodeset),
        "RealMemory": real_memory(nodeset),
        **({"Gres": _gres(nodeset.gpus)} if nodeset.gpus else {}),
        **({"Weight": nodeset.weight} if nodeset.weight else {}),
        "Feature": features,
    }
    return words(ours, nodeset.parameters)


def node_shape(nodeset: Nodeset) -> str:
    """Return the hardware that a node of this nodeset must have (see agents/node.py)."""
    return " ".join(
        word for word in node_conf(nodeset).split() if word.partition("=")[0].lower() in _SHAPE
    )


def node_line(nodeset: Nodeset) -> str | None:
    """Return the line of slurm.conf for a static nodeset's nodes.

    If DNS does not resolve a node's name, slurmctld waits for ten seconds. An absent node must
    therefore have an address that needs no lookup. All static nodes are CLOUD nodes. When such a
    node registers, slurmctld 24.11 replaces this address with the address of the sender. slurmctld
    keeps the new address across restarts, and gives it to srun. For other nodes, srun would use
    the address in slurm.conf.

    slurmctld assumes that a CLOUD node is powered down, and would start jobs on it. The program at
    `ABSENT_PROGRAM` therefore sets absent nodes to down, except nodes on demand.
    """
    if nodeset.kind != "static" or not nodeset.replicas:
        return None
    names = compress(c.node_names(nodeset.name, nodeset.replicas))
    return f"NodeName={names} {node_conf(nodeset)} State=CLOUD NodeAddr={_NOWHERE}"


def real_memory(nodeset: Nodeset) -> int:
    """Return the memory in MiB that Slurm may allocate to jobs on a node."""
    return nodeset.memory - reserved_memory(nodeset)


def reserved_memory(nodeset: Nodeset) -> int:
    """Return the memory in MiB that a node reserves for daemons: an eighth, at most 4 GiB.

    The pod's memory limit includes slurmd, one slurmstepd per step, and the jobs' files in
    /dev/shm, which is in memory. Pods of users do not use the memory of the node's pod.
    """
    return 0 if nodeset.pods_only else min(nodeset.memory // 8, 4096)


def memory_per_cpu(partition: Partition, settings: Settings) -> int:
    """Return a job's default memory per CPU in MiB: the smallest share among the partition's nodes.

    Without a default, a job would get all memory of its node, and no second job could run there.
    """
    return partition.memory_per_cpu or min(
        real_memory(nodeset) // nodeset.cpus
        for nodeset in settings.nodesets
        if nodeset.name in partition.nodesets
    )


def memory_per_gpu(partition: Partition, settings: Settings) -> int | None:
    """Return a job's default memory per GPU in MiB.

    Return None if the settings have no value and a nodeset of the partition has no GPUs.
    """
    nodesets = [each for each in settings.nodesets if each.name in partition.nodesets]
    shares = [real_memory(each) // each.gpus.number() for each in nodesets if each.gpus]
    fair = min(shares) if shares and len(shares) == len(nodesets) else None
    return partition.memory_per_gpu or fair


def max_node_count(settings: Settings) -> int:
    """Return MaxNodeCount: a power of two that is at least 1024 and more than twice the number of
    nodes. slurmctld uses the remaining places for nodes that are added later."""
    nodes = sum(nodeset.replicas for nodeset in settings.nodesets)
    return max(_MIN_NODE_COUNT, 1 << (2 * nodes).bit_length())


_MIN_NODE_COUNT = 1024


def partition_line(partition: Partition, settings: Settings) -> str:
    per_gpu = memory_per_gpu(partition, settings)
    sharing = "EXCLUSIVE" if partition.exclusive else partition.over_subscribe.upper()
    ours: dict[str, object] = {
        "PartitionName": partition.name,
        "Nodes": ",".join(sorted(partition.nodesets)),
        "Default": partition.default,
        "DefMemPerCPU": memory_per_cpu(partition, settings),
        "MaxTime": partition.max_time,
        "State": partition.state.upper(),
        "OverSubscribe": sharing,
    }
    chosen: dict[str, object] = {
        "DefMemPerGPU": per_gpu,
        "DefaultTime": partition.default_time,
        "MinNodes": partition.min_nodes,
        "MaxNodes": partition.max_nodes,
        "PriorityTier": partition.priority_tier,
        "PriorityJobFactor": partition.priority_job_factor,
        "PreemptMode": _preempt_mode(partition, settings),
        "GraceTime": partition.grace_time,
        "QOS": partition.qos,
        "AllowQos": ",".join(partition.allow_qos) or None,
        "DenyQos": ",".join(partition.deny_qos) or None,
        "AllowAccounts": ",".join(partition.allow_accounts) or None,
        "AllowGroups": ",".join(partition.allow_groups) or None,
        "Hidden": partition.hidden or None,
    }
    ours.update({name: value for name, value in chosen.items() if value is not None})
    return words(ours, partition.parameters)


def _preempt_mode(partition: Partition, settings: Settings) -> str | None:
    """Return the partition's PreemptMode, or None if the cluster's PreemptMode applies."""
    if settings.slurm.preemption.type == "none":
        # Long checks need preemption; users' jobs still must not be preempted.
        return "OFF" if settings.long_checks.checks else None
    return partition.preempt_mode and partition.preempt_mode.upper()


def gres_lines(nodeset: Nodeset) -> list[str]:
    """Return the nodeset's lines of gres.conf. slurmctld needs them to accept nodes with GPUs.

    slurmctld ignores the names of the device files: each node reports its own (agents/gpus.py).
    """
    gpus = nodeset.gpus
    if gpus is None:
        return []
    # List all nodes that can ever exist, so that a resize does not change the file.
    node = f"NodeName={nodeset.name}-[0-{c.MAX_REPLICAS - 1}]"
    lines, last = [], 0
    for kind, count in sorted(gpus.mig.items()) or [(gpus.type, gpus.count)]:
        first, last = last + 1, last + count
        lines.append(f"{node} Name=gpu Type={kind} File=/dev/gpu[{first}-{last}]")
    if gpus.shards:
        lines.append(f"{node} Name=shard Count={gpus.count * gpus.shards}")
    return lines


def words(ours: Mapping[str, object], further: Mapping[str, object]) -> str:
    """Write `Key=value` for each parameter.

    A parameter in `further` replaces the parameter with the same name in `ours`.
    """
    replaced = {name.lower() for name in further}
    kept = {name: value for name, value in ours.items() if name.lower() not in replaced}
    return " ".join(
        f"{name}={_word(value)}" for name, value in (*kept.items(), *sorted(further.items()))
    )


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value)


def _layout(nodeset: Nodeset) -> dict[str, int]:
    if nodeset.sockets is None and nodeset.threads_per_core is None:
        return {}
    sockets, threads = nodeset.sockets or 1, nodeset.threads_per_core or 1
    cores = nodeset.cpus // (sockets * threads)
    return {"Sockets": sockets, "CoresPerSocket": cores, "ThreadsPerCore": threads}


def _gres(gpus: Gpus) -> str:
    """Return a node's gres, such as `gpu:h100:8,shard:32`."""
    if gpus.mig:
        return ",".join(f"gpu:{profile}:{n}" for profile, n in sorted(gpus.mig.items()))
    shards = f",shard:{gpus.count * gpus.shards}" if gpus.shards else ""
    return f"gpu:{gpus.type}:{gpus.count}{shards}"
