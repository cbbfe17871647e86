"""The real slurmctld starts without errors with many different settings."""

from typing import Any

import pytest

from components.settings import read_stack
from components.slurmconf import node_conf
from local.paths import ROOT
from tests.support.slurmctld import Slurmctld
from tests.support.stack import alone, without_accounting

Values = dict[str, Any]

CPU: Values = {"name": "cpu", "replicas": 4, "cpus": 8, "memory": "32GiB"}
GPU: Values = {
    "name": "gpu",
    "replicas": 4,
    "cpus": 64,
    "memory": "512GiB",
    "gpus": {"type": "h100", "count": 8},
}
QUEUE: Values = {"name": "main", "nodesets": ["cpu"], "default": True}
STATIC: Values = {**CPU, "kind": "static"}
STATIC_GPU: Values = {**GPU, "kind": "static"}
SCRIPT = {"text": "#!/bin/sh\nexit 0\n"}
ALONE = {"enabled": False, "script": SCRIPT}
LUA = """
function slurm_job_submit(job, partitions, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""


def nodesets(*given: Values) -> Values:
    return {"nodesets": list(given)}


def cpu(**fields: Any) -> Values:
    return nodesets({**CPU, **fields})


def gpus(**fields: Any) -> Values:
    return nodesets({**GPU, "gpus": {**GPU["gpus"], **fields}})


def partition(**fields: Any) -> Values:
    return {**cpu(), "partitions": [{**QUEUE, **fields}]}


def slurm(**fields: Any) -> Values:
    return {**cpu(), "slurm": fields}


def topology(kind: str, *given: Values, **fields: Any) -> Values:
    return {**nodesets(*given), "slurm": {"topology": {"kind": kind, **fields}}}


def preemption(kind: str, mode: str, *modes: str) -> Values:
    queues = [
        {
            "name": f"tier{tier}",
            "nodesets": ["cpu"],
            "default": tier == 1,
            "priority_tier": tier,
            "preempt_mode": own,
        }
        for tier, own in enumerate(modes, start=1)
    ]
    return {
        **cpu(),
        "slurm": {"preemption": {"type": kind, "mode": mode}},
        "partitions": queues or [QUEUE],
    }


NO_QOS = r"We have no QOS on the system Ignoring invalid Allow/DenyQOS value"
"""Without accounting, no QOS exists. Slurm warns, and permits all users."""
NO_DEFAULT = r"default partition not set"
"""Slurm warns if there is no default partition. Users must then specify a partition."""
NO_DBD = r"PriorityWeight\w+ can only be used with SlurmDBD, ignoring"
"""Without accounting, Slurm knows no usage. Slurm warns, and ignores this factor."""

CASES: list[tuple[str, Values]] = [
    ("defaults of the dev stack", {}),
    ("a nodeset without nodes", cpu(replicas=0)),
    ("ten thousand nodes", cpu(replicas=10_000)),
    ("a name of one letter", cpu(name="c")),
    ("features", cpu(features=["avx512", "fast"])),
    ("a weight", cpu(weight=100)),
    ("sockets and threads", cpu(sockets=2, threads_per_core=2)),
    ("parameters of nodes", cpu(parameters={"TmpDisk": 1000, "MemSpecLimit": 512})),
    ("GPUs", gpus()),
    ("one GPU", gpus(count=1)),
    ("GPUs in shards", gpus(shards=4)),
    ("GPUs in MIG slices", gpus(mig={"1g.10gb": 4, "3g.40gb": 2})),
    ("GPUs and CPUs", nodesets(CPU, GPU)),
    (
        "GPUs of two types",
        nodesets(GPU, {**GPU, "name": "old", "gpus": {"type": "v100", "count": 2}}),
    ),
    ("static nodes", nodesets(STATIC)),
    ("static nodes with all fields", nodesets({**STATIC, "sockets": 2, "weight": 5})),
    ("static GPUs", nodesets(STATIC_GPU)),
    ("static GPUs in shards", nodesets({**STATIC_GPU, "gpus": {**GPU["gpus"], "shards": 2}})),
    (
        "static GPUs in MIG slices",
        nodesets({**STATIC_GPU, "gpus": {**GPU["gpus"], "mig": {"1g.10gb": 7}}}),
    ),
    ("a thousand static nodes", nodesets({**STATIC, "replicas": 1000})),
    ("static and dynamic nodes", nodesets(STATIC, GPU)),
    ("a static nodeset without nodes", nodesets({**STATIC, "replicas": 0})),
    ("a default partition with limits", partition(default=True, max_time="7-00:00:00")),
    ("times in each format", partition(max_time="1-12", default_time="01:30:30")),
    ("limits of nodes for each job", partition(min_nodes=1, max_nodes=4)),
    ("memory for each CPU", partition(memory_per_cpu="2GiB")),
    ("priority tier and factor", partition(priority_tier=10, priority_job_factor=100)),
    ("a hidden partition in state drain", partition(state="drain", hidden=True)),
    ("whole nodes for each job", partition(exclusive=True)),
    ("shared CPUs", partition(over_subscribe="force")),
    ("allowed accounts", partition(allow_accounts=["physics", "chemistry"])),
    (
        "allowed groups",
        {
            **partition(allow_groups=["lab", "researcher"]),
            "groups": [{"name": "lab", "gid": 5000, "members": ["researcher", "student"]}],
        },
    ),
    ("parameters of a partition", partition(parameters={"LLN": True, "maxtime": "1:00:00"})),
    ("several partitions", preemption("partition_prio", "requeue", "off", "requeue", "cancel")),
    ("preemption that suspends jobs", preemption("partition_prio", "suspend", "suspend")),
    (
        "a partition whose jobs are suspended",
        preemption("partition_prio", "requeue", "suspend", "off"),
    ),
    ("preemption by QOS", preemption("qos", "cancel")),
    ("builtin scheduler", slurm(scheduler={"type": "builtin"})),
    (
        "parameters of the scheduler",
        slurm(
            scheduler={"parameters": {"bf_max_time": 30, "defer_batch": True, "bf_window": 2880}}
        ),
    ),
    ("timeouts", slurm(timeouts={"message": 10, "complete": 5, "unkillable_step": 180})),
    ("a high limit of jobs", slurm(max_jobs=200_000)),
    ("prolog and epilog", slurm(prolog=SCRIPT, epilog=SCRIPT)),
    ("prolog and epilog of tasks", slurm(task_prolog=SCRIPT, task_epilog=SCRIPT)),
    ("no checks", {**cpu(), "health": {"enabled": False}}),
    ("a site script in place of checks", {**cpu(), "health": ALONE}),
    (
        "job checks with site scripts",
        {
            **slurm(prolog=SCRIPT, epilog=SCRIPT),
            **cpu(checks={"infiniband-link": {}}),
            "health": {"interval": 30, "node_states": ["idle"], "script": SCRIPT},
        },
    ),
    ("a Lua script for submitted jobs", slurm(job_submit_lua={"text": LUA})),
    ("jobs that are not confined", slurm(cgroups="disabled")),
    ("nodes that must confine jobs", slurm(cgroups="required")),
    ("parameters of slurmctld", slurm(slurmctld_parameters={"idle_on_node_suspend": True})),
    (
        "extra lines of the operator",
        slurm(
            extra={
                "slurm.conf": ["# ours", "KillWait=60", "SchedulerParameters=bf_interval=15"],
                "cgroup.conf": ["AllowedRAMSpace=95"],
            }
        ),
    ),
    (
        "a tree of switches",
        topology("tree", STATIC, switches=[{"name": "leaf", "nodesets": ["cpu"]}]),
    ),
    (
        "a tree of two levels",
        topology(
            "tree",
            STATIC,
            STATIC_GPU,
            switches=[
                {"name": "left", "nodes": "cpu-[0-1],gpu-[0-1]"},
                {"name": "right", "nodes": "cpu-[2-3],gpu-[2-3]"},
                {"name": "top", "switches": ["left", "right"]},
            ],
        ),
    ),
    (
        "a tree over some of the nodes",
        topology("tree", STATIC_GPU, CPU, switches=[{"name": "leaf", "nodesets": ["gpu"]}]),
    ),
    ("a block", topology("block", STATIC, blocks=[{"name": "one", "nodesets": ["cpu"]}])),
    (
        "blocks of two sizes",
        topology(
            "block",
            STATIC_GPU,
            CPU,
            blocks=[{"name": "a", "nodes": "gpu-[0-1]"}, {"name": "b", "nodes": "gpu-[2-3]"}],
            block_sizes=[2, 4],
        ),
    ),
    (
        "Slurm's own keys",
        # This test runs no sackd, so slurmctld itself must sign credentials: AuthInfo replaces
        # the default `disable_sack`.
        {
            **cpu(),
            "auth": {"type": "slurm"},
            "slurm": {"extra": {"slurm.conf": ["AuthInfo=ttl=120"]}},
        },
    ),
    ("two pods for REST", {**cpu(), "rest": {"replicas": 2}}),
    ("priority by size and partition", slurm(priority={"type": "multifactor", "job_size": 10})),
    (
        "priority by requested TRES",
        slurm(priority={"type": "multifactor", "tres": {"cpu": 10, "mem": 5, "node": 1}}),
    ),
]
WARNINGS: list[tuple[str, Values, str]] = [
    ("no nodes at all", nodesets(), NO_DEFAULT),
    ("no default partition", partition(default=False), NO_DEFAULT),
    ("allowed QOS", partition(allow_qos=["high", "low"]), NO_QOS),
    ("denied QOS", partition(deny_qos=["low"]), NO_QOS),
    ("priority by age", slurm(priority={"type": "multifactor", "age": 1000}), NO_DBD),
    ("priority by use", slurm(priority={"type": "multifactor", "fairshare": 1000}), NO_DBD),
]
"""Settings that make Slurm log a warning."""


@pytest.mark.parametrize(("what", "values"), CASES, ids=[case[0] for case in CASES])
def test_slurmctld_starts_without_errors(what: str, values: Values, slurmctld: Slurmctld) -> None:
    settings = alone(lambda valid: valid.update(values))
    slurmctld.install(settings)

    slurmctld.start()
    for nodeset in settings.nodesets:
        if nodeset.kind == "dynamic":
            node = f"nodename={nodeset.name}-0 {node_conf(nodeset)} state=cloud"
            slurmctld.run(f"scontrol create {node}", user="root")

    assert slurmctld.errors() == []


@pytest.mark.parametrize(
    ("what", "values", "harmless"), WARNINGS, ids=[case[0] for case in WARNINGS]
)
def test_slurmctld_logs_only_the_expected_warning(
    what: str, values: Values, harmless: str, slurmctld: Slurmctld
) -> None:
    slurmctld.install(alone(lambda valid: valid.update(values)))

    slurmctld.start()

    assert slurmctld.errors(harmless) == []


@pytest.mark.parametrize("stack", ["dev", "gpu"])
def test_slurmctld_starts_with_the_files_of_a_stack(stack: str, slurmctld: Slurmctld) -> None:
    slurmctld.install(without_accounting(read_stack(stack, ROOT)))

    slurmctld.start()

    assert slurmctld.errors() == []


def test_checks_of_this_file_detect_errors_of_slurmctld(slurmctld: Slurmctld) -> None:
    complaint = ["PluginDir=/nowhere", "SlurmdParameters=l3cache_as_socket"]
    slurmctld.install(alone(lambda valid: valid.update(slurm(extra={"slurm.conf": complaint}))))

    with pytest.raises(AssertionError, match="does not start"):
        slurmctld.start()

    assert slurmctld.errors() != []
