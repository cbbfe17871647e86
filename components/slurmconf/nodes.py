"""What Slurm is told of nodes and partitions, as the words of its lines."""

from collections.abc import Mapping

from components import conventions as c
from components.hostlist import compress
from components.settings import Gpus, Nodeset, Partition, Settings

_SHAPE = ("cpus", "sockets", "corespersocket", "threadspercore", "gres")
_NOWHERE = "192.0.2.1"
"""An address that no host has (RFC 5737) and that needs no look-up."""


def node_conf(nodeset: Nodeset) -> str:
    """What a node of this nodeset says of itself when it registers (`slurmd -Z --conf`)."""
    features = ",".join((nodeset.name, *sorted(nodeset.features)))
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
    """What a node of this nodeset is to find on its machine (agents/node.py)."""
    return " ".join(
        word for word in node_conf(nodeset).split() if word.partition("=")[0].lower() in _SHAPE
    )


def node_line(nodeset: Nodeset) -> str | None:
    """The line of slurm.conf that lists a static nodeset's nodes.

    A name that does not resolve halts slurmctld for ten seconds, so an absent node must have an
    address that needs no look-up. Only of a CLOUD node does slurmctld take the address that it
    registers from, keep it over a restart, and hand it to srun (24.11; without that an address in
    slurm.conf stands, and steps are launched to it). slurmctld believes such a node to be powered
    down and would start jobs on it: the program at `ABSENT_PROGRAM` says that it is down.
    """
    if nodeset.kind != "static" or not nodeset.replicas:
        return None
    names = compress(c.node_names(nodeset.name, nodeset.replicas))
    return f"NodeName={names} {node_conf(nodeset)} State=CLOUD NodeAddr={_NOWHERE}"


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
    return partition.memory_per_cpu or min(
        real_memory(nodeset) // nodeset.cpus
        for nodeset in settings.nodesets
        if nodeset.name in partition.nodesets
    )


def memory_per_gpu(partition: Partition, settings: Settings) -> int | None:
    """Memory in MiB that a job gets for each GPU unless it asks. None where nodes have no GPUs."""
    nodesets = [each for each in settings.nodesets if each.name in partition.nodesets]
    shares = [real_memory(each) // each.gpus.number() for each in nodesets if each.gpus]
    fair = min(shares) if shares and len(shares) == len(nodesets) else None
    return partition.memory_per_gpu or fair


def max_node_count(settings: Settings) -> int:
    """Room for dynamic nodes: the next power of two over twice the nodes, at least 1024."""
    nodes = sum(nodeset.replicas for nodeset in settings.nodesets)
    return max(_MIN_NODE_COUNT, 1 << (2 * nodes).bit_length())


_MIN_NODE_COUNT = 1024


def partition_line(partition: Partition, settings: Settings) -> str:
    """The partition's line of slurm.conf."""
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
    """What becomes of a partition's jobs that others preempt; None where it is as for all."""
    if settings.slurm.preemption.type == "none":
        # Long checks make way, and need preemption for that; users' jobs still do not.
        return "OFF" if settings.long_checks.checks else None
    return partition.preempt_mode and partition.preempt_mode.upper()


def gres_lines(nodeset: Nodeset) -> list[str]:
    """The nodeset's lines of gres.conf for slurmctld, without which it takes no node with GPUs.

    What the files are called does not matter to it: each node tells its own (agents/gpus.py).
    """
    gpus = nodeset.gpus
    if gpus is None:
        return []
    # All nodes that there may ever be, so that a resize leaves the file as it is.
    node = f"NodeName={nodeset.name}-[0-{c.MAX_REPLICAS - 1}]"
    lines, last = [], 0
    for kind, count in sorted(gpus.mig.items()) or [(gpus.type, gpus.count)]:
        first, last = last + 1, last + count
        lines.append(f"{node} Name=gpu Type={kind} File=/dev/gpu[{first}-{last}]")
    if gpus.shards:
        lines.append(f"{node} Name=shard Count={gpus.count * gpus.shards}")
    return lines


def gres_types(settings: Settings) -> list[str]:
    """Kinds of gres that any node has."""
    gpus = [nodeset.gpus for nodeset in settings.nodesets if nodeset.gpus]
    return ["gpu"] * bool(gpus) + ["shard"] * any(gpu.shards for gpu in gpus)


def words(ours: Mapping[str, object], further: Mapping[str, object]) -> str:
    """`Key=value` for each parameter of a line; a further one replaces ours of the same name."""
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
    """What a node has, as `gpu:h100:8,shard:32`."""
    if gpus.mig:
        return ",".join(f"gpu:{profile}:{n}" for profile, n in sorted(gpus.mig.items()))
    shards = f",shard:{gpus.count * gpus.shards}" if gpus.shards else ""
    return f"gpu:{gpus.type}:{gpus.count}{shards}"
