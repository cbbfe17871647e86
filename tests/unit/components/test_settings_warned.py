"""Warnings of a deploy about settings that are valid, but are probably wrong or incomplete."""

import re
from typing import Any

import pytest

from tests.support.clouds import EKS, METAL, NEBIUS
from tests.support.stack import VALID, settings

Values = dict[str, Any]
DIRECTORY = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}
EXISTING: Values = {**VALID, "cluster": {"kind": "existing", "context": "lab"}}
USERS: Values = {"name": "users", "qos": ["high", "low"]}
"""An account that may use the QOS in these tests."""


def warnings(values: Values, **changes: Any) -> list[str]:
    return list(settings(base={**values, **changes}).warnings())


@pytest.mark.parametrize("values", [VALID, EKS, NEBIUS])
def test_complete_settings_cause_no_warning(values: Values) -> None:
    assert warnings(values) == []


def test_existing_cluster_without_a_registry_causes_a_warning() -> None:
    (warning,) = warnings(EXISTING)
    assert warning.startswith("slurmstack:registry: is not set")
    assert warning.endswith("set 'registry' to a registry that the nodes can reach")
    assert warnings(EXISTING, registry="registry.example.org") == []


@pytest.mark.parametrize("kubeconfig", [None, "lab.yaml"])
def test_existing_cluster_without_a_context_causes_a_warning(kubeconfig: str | None) -> None:
    cluster = {"kind": "existing", "kubeconfig": kubeconfig}
    (warning,) = warnings(EXISTING, cluster=cluster, registry="registry.example.org")
    assert warning == (
        "slurmstack:cluster.context: is not set, so the deploy uses the current context of the "
        "kubeconfig, which `kubectl config use-context` changes; set cluster.context to the name "
        "of this cluster's context"
    )


_CLASS = {"storage_class": "fast"}
ON_CLASSES: Values = {
    **METAL,
    "network": {"cilium": {}},
    "jail": _CLASS,
    "controller": _CLASS,
    "accounting": {"database": _CLASS, "backup": _CLASS},
    "monitoring": {"bundled": _CLASS},
}


@pytest.mark.parametrize("kubelet", [None, {"cpuManagerPolicy": "static"}])
def test_exclusive_cpus_without_a_static_cpu_manager_cause_a_warning(
    kubelet: dict[str, str] | None,
) -> None:
    cluster = {**METAL["cluster"], "kubeadm": {"KubeletConfiguration": kubelet} if kubelet else {}}
    nodesets = [{**METAL["nodesets"][0], "exclusive_cpus": True}, *METAL["nodesets"][1:]]

    found = warnings(METAL, cluster=cluster, nodesets=nodesets)

    expected = [] if kubelet else ["slurmstack:nodesets[gpu].exclusive_cpus"]
    assert [line.split(": ")[0] for line in found if "exclusive_cpus" in line] == expected


def test_own_machines_without_network_plugin_and_storage_cause_warnings() -> None:
    found = warnings(METAL, network={}, jail={})
    assert [warning.split(": ")[0] for warning in found] == [
        "slurmstack:network.cilium",
        "slurmstack:jail.storage_class",
    ]
    assert warnings(ON_CLASSES) == []


@pytest.mark.parametrize(
    ("edit", "keys"),
    [
        ({"jail": {"nfs": {"server": "nfs.lab", "path": "/jail"}}}, []),
        ({"jail": {"server": {"machines": ["192.0.2.0/24"]}}}, ["jail.server"]),
        ({"controller": {}}, ["controller"]),
        ({"accounting": {}}, ["accounting.database", "accounting.backup"]),
        ({"accounting": {"enabled": False}}, []),
        (
            {
                "accounting": {
                    "external": {"host": "db.lab", "password_secret": "db"},
                    "backup": {"claim": "dumps"},
                    "purge": {"jobs": "12months"},
                    "archive": {},
                }
            },
            ["accounting.archive"],
        ),
        ({"long_checks": {"checks": [{"name": "nccl"}]}}, ["long_checks"]),
        ({"monitoring": {}}, ["monitoring.bundled"]),
        ({"monitoring": {"kind": "none"}}, []),
    ],
)
def test_volume_without_class_on_own_machines_causes_a_warning(
    edit: Values, keys: list[str]
) -> None:
    found = warnings(ON_CLASSES, **edit)
    assert len(found) == bool(keys)
    for warning in found:
        assert re.findall(r"[a-z_.]+(?=\.storage_class)", warning) == keys
        assert warning.endswith("; set each storage_class")


def test_own_machines_with_the_default_login_service_cause_a_warning() -> None:
    (warning,) = warnings(ON_CLASSES, login={})
    assert warning.startswith(
        "slurmstack:login.service: is not set, so its default 'LoadBalancer' applies"
    )
    assert warnings(ON_CLASSES, login={"service": "NodePort", "node_port": 30022}) == []


def test_several_large_machines_without_efa_cause_a_warning() -> None:
    machines = {**EKS["cluster"]["machines"], "gpu": {"type": "p5.48xlarge"}}
    (warning,) = warnings(EKS, cluster={**EKS["cluster"], "machines": machines})
    assert warning.startswith("slurmstack:cluster.machines.gpu.efa: is not set")
    assert warning.endswith("Adapters of p5.48xlarge; add efa: 32")


def test_more_gpus_than_the_nodes_use_cause_a_warning() -> None:
    nodesets = [{**EKS["nodesets"][0], "gpus": {"type": "h100", "count": 4}}, *EKS["nodesets"][1:]]
    (warning,) = warnings(EKS, nodesets=nodesets)
    assert warning == (
        "slurmstack:cluster.machines.gpu.type: 'p5.48xlarge': has 8 GPUs, but gpus.count of the "
        "nodeset is 4, so jobs cannot use the other GPUs; set gpus.count to 8, or choose a "
        "smaller type"
    )


def test_fabric_without_checks_or_checks_without_fabric_cause_a_warning() -> None:
    plain = [{**nodeset, "features": []} for nodeset in NEBIUS["nodesets"]]
    (warning,) = warnings(NEBIUS, nodesets=plain)
    assert warning == (
        "slurmstack:cluster.machines.gpu.fabric: 'fabric-6': the nodes have InfiniBand, but do "
        "not check their ports; add 'features: [infiniband]' to nodeset 'gpu'"
    )

    checked = [{**nodeset, "features": ["infiniband"]} for nodeset in NEBIUS["nodesets"]]
    (warning,) = warnings(NEBIUS, nodesets=checked)
    assert warning.startswith(
        "slurmstack:nodesets[cpu].features: infiniband: the machines of nodeset 'cpu' are in no "
        "fabric"
    )


def test_partition_for_an_unknown_account_causes_a_warning() -> None:
    partition = {
        "name": "main",
        "nodesets": ["cpu"],
        "default": True,
        "allow_accounts": ["physic", "root"],
    }
    accounts = {"accounts": [{"name": "physics", "description": "P"}]}
    (warning,) = warnings(VALID, partitions=[partition], accounting=accounts)
    assert warning == (
        "slurmstack:partitions[main].allow_accounts: account 'physic' is not in "
        "accounting.accounts, so its jobs start only if an administrator created it with "
        "sacctmgr; add it to accounting.accounts, or correct the name; did you mean 'physics'?"
    )
    (warning,) = warnings(VALID, partitions=[partition])
    assert warning.endswith(
        "add it to accounting.accounts, or correct the name; known: root, users"
    )


@pytest.mark.parametrize("accounts", [[], [{"name": "physics"}]])
def test_partition_for_the_default_account_causes_no_warning(accounts: list[Values]) -> None:
    partition = {"name": "main", "nodesets": ["cpu"], "default": True, "allow_accounts": ["all"]}
    accounting = {"default_account": "all", "accounts": accounts}
    assert warnings(VALID, partitions=[partition], accounting=accounting) == []


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        ({"slurm": {"preemption": {"type": "qos"}}}, "slurm.preemption.type: qos"),
        (
            {"slurm": {"priority": {"type": "multifactor", "fairshare": 5}}},
            "slurm.priority.fairshare: 5",
        ),
        (
            {
                "partitions": [
                    {"name": "main", "nodesets": ["cpu"], "default": True, "allow_qos": ["high"]}
                ]
            },
            "partitions[main].allow_qos: high",
        ),
        (
            {
                "partitions": [
                    {
                        "name": "main",
                        "nodesets": ["cpu"],
                        "default": True,
                        "allow_accounts": ["physics"],
                    }
                ]
            },
            "partitions[main].allow_accounts: physics",
        ),
    ],
)
def test_settings_that_require_accounting_cause_a_warning_without_it(
    edit: Values, key: str
) -> None:
    (warning,) = warnings(VALID, accounting={"enabled": False}, **edit)
    assert warning.startswith(
        f"slurmstack:{key}: has no effect, because accounting.enabled is false"
    )


def test_scheduler_parameter_that_slurm_ignores_causes_a_warning() -> None:
    parameters = {"BF_Max_Tim": 120, "BF_Window": 600, "defer": True, "max_rpc_count": 10}
    (warning,) = warnings(VALID, slurm={"scheduler": {"parameters": parameters}})
    assert warning == (
        "slurmstack:slurm.scheduler.parameters.BF_Max_Tim: is unknown to Slurm 24.11, "
        "which ignores it; did you mean 'bf_max_time'?"
    )


def test_slurmctld_parameter_that_slurm_ignores_causes_a_warning() -> None:
    parameters = {"idle_on_nod_suspend": True, "RL_Enable": True, "conmgr_threads": 32}
    (warning,) = warnings(VALID, slurm={"slurmctld_parameters": parameters})
    assert warning == (
        "slurmstack:slurm.slurmctld_parameters.idle_on_nod_suspend: is unknown to Slurm 24.11, "
        "which ignores it; did you mean 'idle_on_node_suspend'?"
    )


def test_qos_with_preempt_causes_a_warning_if_preemption_is_disabled() -> None:
    qos = [{"name": "high", "preempt": ["normal"]}, {"name": "low"}]
    accounting = {"qos": qos, "accounts": [USERS]}
    (warning,) = warnings(VALID, accounting=accounting)
    assert warning == (
        "slurmstack:accounting.qos[high].preempt: normal: has no effect, because "
        "slurm.preemption.type is 'none'; set slurm.preemption.type to 'qos', or remove 'preempt'"
    )


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"allow_qos": ["hihg"]}, "allow_qos: 'hihg' is not in accounting.qos; did you mean"),
        ({"deny_qos": ["other"]}, "deny_qos: 'other' is not in accounting.qos; known: "),
        ({"min_nodes": 3}, "min_nodes: 3: no job can start, because the partition's nodesets have"),
    ],
)
def test_partition_that_probably_refuses_all_jobs_causes_a_warning(
    fields: Values, warning: str
) -> None:
    partition = {"name": "main", "nodesets": ["cpu"], "default": True, **fields}
    accounting = {"qos": [{"name": "high"}, {"name": "low"}], "accounts": [USERS]}
    (found,) = warnings(VALID, partitions=[partition], accounting=accounting)
    assert found.startswith(f"slurmstack:partitions[main].{warning}")


def test_partition_without_nodes_and_qos_in_upper_case_cause_no_warning() -> None:
    partition = {
        "name": "main",
        "nodesets": ["cpu"],
        "default": True,
        "min_nodes": 1,
        "allow_qos": ["NORMAL"],
    }
    nodeset = {**VALID["nodesets"][0], "replicas": 0}
    assert warnings(VALID, partitions=[partition], nodesets=[nodeset]) == []


def test_log_endpoint_with_the_grpc_port_causes_a_warning() -> None:
    logs = {"endpoint": "http://collector.lab:4317"}
    (warning,) = warnings(VALID, monitoring={"logs": logs})
    assert "OTLP over HTTP, usually 4318" in warning


def test_misspelled_name_of_a_secret_causes_a_warning() -> None:
    secrets = {"registry": {".dockerconfigjson": {"secure": "v1:a"}}}
    (warning,) = warnings(VALID, secrets=secrets, pull_secrets=["regsitry"])
    assert warning == (
        "slurmstack:pull_secrets[0]: 'regsitry' is not a Secret in the setting 'secrets'; did you "
        "mean 'registry'?"
    )


def test_warning_suggests_an_unused_secret_with_the_required_entries() -> None:
    secrets = {"registry": {".dockerconfigjson": {"secure": "v1:a"}}}
    (warning,) = warnings(VALID, secrets=secrets, pull_secrets=["docker-login"])
    assert warning == (
        "slurmstack:pull_secrets[0]: 'docker-login' is not a Secret in the setting 'secrets'; did "
        "you mean 'registry'?"
    )
    both = ["registry", "docker-login"]
    assert warnings(VALID, secrets=secrets, pull_secrets=both) == []
    other = {"registry": {"password": {"secure": "v1:a"}}}
    assert warnings(VALID, secrets=other, pull_secrets=["docker-login"]) == []


def test_warning_does_not_suggest_the_secret_of_a_volume() -> None:
    secrets = {"files": {"password": {"secure": "v1:a"}}}
    backup = {"backup": {"password_secret": "dumps"}}
    assert len(warnings(VALID, secrets=secrets, accounting=backup)) == 1
    jail = {"volumes": [{"name": "files", "path": "/files", "secret": "files"}]}
    assert warnings(VALID, secrets=secrets, accounting=backup, jail=jail) == []


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "db_password"])
def test_credential_in_the_environment_of_jobs_causes_a_warning(name: str) -> None:
    containers = {"enabled": True, "environment": {name: "abc", "TOKENIZERS_PARALLELISM": "true"}}
    (warning,) = warnings(VALID, containers=containers)
    assert warning.startswith(
        f"slurmstack:containers.environment.{name}: this name suggests a credential"
    )
    assert "abc" not in warning


def test_allowed_image_name_without_tag_or_pattern_causes_a_warning() -> None:
    allowed = ["nvcr.io/nvidia", "docker.io/*", "quay.io/a/b:1"]
    (warning,) = warnings(VALID, containers={"enabled": True, "allowed": allowed})
    assert warning.startswith("slurmstack:containers.allowed: 'nvcr.io/nvidia': permits only")


LIMITED: Values = {
    "accounts": [
        {
            "name": "physics",
            "max_jobs": 5,
            "users": [{"name": "researcher", "grp_tres": {"cpu": 10}, "fairshare": 2}],
        },
        {"name": "biology", "fairshare": 3, "qos": ["short"]},
    ],
    "qos": [{"name": "short", "max_wall": "01:00:00", "priority": 10}],
}


@pytest.mark.parametrize(
    ("values", "enforce", "shown"),
    [
        (VALID, ["associations"], "associations"),
        (VALID, [], "no rules"),
        ({**VALID, "directory": DIRECTORY}, None, "no rules, the default with directory"),
    ],
)
def test_limits_that_slurm_does_not_enforce_cause_a_warning(
    values: Values, enforce: list[str] | None, shown: str
) -> None:
    accounting = {**LIMITED, **({} if enforce is None else {"enforce": enforce})}

    assert warnings(values, accounting=accounting) == [
        (
            f"slurmstack:accounting.enforce: {shown}: Slurm ignores the limits of"
            " accounts[physics], accounts[physics].users[researcher], qos[short];"
            " add 'limits' to accounting.enforce"
        )
    ]


@pytest.mark.parametrize("enforce", [None, ["limits"], ["safe"]])
def test_enforced_limits_cause_no_warning(enforce: list[str] | None) -> None:
    accounting = {**LIMITED, **({} if enforce is None else {"enforce": enforce})}

    assert warnings(VALID, accounting=accounting) == []


def test_shares_and_priorities_are_not_limits() -> None:
    accounting = {
        "enforce": ["associations"],
        "accounts": [{"name": "biology", "fairshare": 3, "description": "B"}],
        "qos": [{"name": "short", "priority": 10}],
    }

    assert warnings(VALID, accounting=accounting) == []


@pytest.mark.parametrize("values", [EKS, NEBIUS, METAL])
def test_node_selector_without_a_matching_machine_causes_a_warning(values: Values) -> None:
    selected = {"pool": "fast", "topology.kubernetes.io/zone": "a"}
    nodesets = [{**each, "node_selector": selected} for each in values["nodesets"][:1]]
    placement = {"controller": {"node_selector": {"role": "control"}}}

    found = warnings(values, nodesets=[*nodesets, *values["nodesets"][1:]], placement=placement)

    assert [warning for warning in found if "node_selector" in warning] == [
        (
            "slurmstack:nodesets[gpu].node_selector.pool: 'fast': the deploy gives no machine this"
            " label, so the pods stay pending; add the label to machines with kubectl, or remove"
            " the label from node_selector"
        ),
        (
            "slurmstack:placement.controller.node_selector.role: 'control': the deploy gives no"
            " machine this label, so the pods stay pending; add the label to machines with"
            " kubectl, or remove the label from node_selector"
        ),
    ]


def test_node_selector_in_an_existing_cluster_causes_no_warning() -> None:
    nodesets = [{**each, "node_selector": {"pool": "fast"}} for each in EXISTING["nodesets"]]

    assert warnings(EXISTING, registry="r.lab", nodesets=nodesets) == []


@pytest.mark.parametrize("field", ["memory_per_cpu", "memory_per_gpu"])
def test_default_memory_above_the_nodes_memory_causes_a_warning(field: str) -> None:
    small = {"name": "small", "replicas": 1, "cpus": 4, "memory": "8GiB"}
    nodesets = [small, {**small, "name": "large", "memory": "16GiB"}]
    partition = {"name": "main", "nodesets": ["small"], "default": True, field: "9GiB"}

    assert warnings(VALID, nodesets=nodesets, partitions=[partition]) == [
        (
            f"slurmstack:partitions[main].{field}: 9GiB: is more than the memory of the partition's"
            f" largest node, 8GiB, so a job starts only if it requests less memory; lower {field}"
        )
    ]
    enough = [{**partition, "nodesets": ["small", "large"]}]
    assert warnings(VALID, nodesets=nodesets, partitions=enough) == []


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("partition_prio", "slurm.preemption.mode"),
        ("partition_prio", "partitions[main].preempt_mode"),
        ("qos", "slurm.preemption.mode"),
        ("qos", "accounting.qos[low].preempt_mode"),
    ],
)
def test_suspended_jobs_that_keep_all_memory_cause_a_warning(kind: str, key: str) -> None:
    queue: Values = {"name": "main", "nodesets": ["cpu"], "default": True}
    urgent = {**queue, "name": "urgent", "default": False, "priority_tier": 2}
    urgent["memory_per_cpu"] = "100MiB"
    low: Values = {"name": "low"}
    mode = "suspend" if key == "slurm.preemption.mode" else "requeue"
    for place, values in (("partitions", queue), ("qos", low)):
        if place in key:
            values["preempt_mode"] = "suspend"

    def found(**memory: str) -> list[str]:
        qos = [{"name": "high", "preempt": ["low"] if kind == "qos" else []}, low]
        return warnings(
            VALID,
            partitions=[{**queue, **memory}, urgent],
            accounting={"enabled": True, "qos": qos, "accounts": [USERS]},
            slurm={"preemption": {"type": kind, "mode": mode}},
        )

    (warning,) = found()
    assert warning.startswith(f"slurmstack:{key}: suspend: suspended jobs keep their memory")
    assert "In the partitions main, jobs" in warning
    assert found(memory_per_cpu="100MiB") == []


SCRATCH = {"name": "fast", "path": "/scratch", "host_path": "/srv/scratch"}


@pytest.mark.parametrize(
    ("edit", "key", "problem"),
    [
        ({"containers": {"enabled": False, "mounts": ["/data:/data"]}}, "containers.mounts", ""),
        ({"containers": {"enabled": False, "cache_size": "1GiB"}}, "containers.cache_size", ""),
        ({"health": {"enabled": False, "checks": {"disk": False}}}, "health.checks", ""),
        ({"health": {"enabled": False, "interval": 30}}, "health.interval", ""),
        ({"long_checks": {"at_once": 4}}, "long_checks.at_once", ""),
        (
            {"slurm": {"preemption": {"mode": "cancel"}}},
            "slurm.preemption.mode",
            "slurm.preemption.type is 'none'",
        ),
        (
            {"slurm": {"preemption": {"type": "qos"}}},
            "slurm.preemption.type",
            "no QOS in accounting.qos has the setting 'preempt'",
        ),
        (
            {"slurm": {"preemption": {"type": "partition_prio"}}},
            "slurm.preemption.type",
            "all partitions have the same priority_tier",
        ),
        (
            {"slurm": {"extra": {"slurm.conf": ["HealthCheckProgram=/usr/sbin/nhc"]}}},
            "slurm.extra.slurm.conf",
            (
                "in place of the stack's checks;"
                " remove this line, and start the program in health.script"
            ),
        ),
    ],
)
def test_setting_without_effect_causes_a_warning(edit: Values, key: str, problem: str) -> None:
    (warning,) = warnings(VALID, **edit)
    assert warning.startswith(f"slurmstack:{key}: ")
    assert (problem or "has no effect, because") in warning


@pytest.mark.parametrize(
    "edit",
    [
        {"containers": {"enabled": False}},
        {"health": {"enabled": False, "interval": 30, "script": {"text": "#!/bin/sh\n"}}},
        {
            "health": {"enabled": False},
            "slurm": {
                "extra": {
                    "slurm.conf": ["HealthCheckProgram=/usr/sbin/nhc", "HealthCheckInterval=60"]
                }
            },
        },
        {
            "slurm": {
                "preemption": {"type": "partition_prio"},
                "extra": {"slurm.conf": ["PartitionName=low Nodes=ALL PriorityTier=0"]},
            }
        },
        {
            "slurm": {"preemption": {"type": "partition_prio"}},
            "partitions": [
                {"name": "a", "nodesets": ["cpu"], "default": True, "priority_tier": 2},
                {"name": "b", "nodesets": ["cpu"]},
            ],
        },
    ],
)
def test_setting_that_still_has_an_effect_causes_no_warning(edit: Values) -> None:
    assert warnings(VALID, **edit) == []


def test_local_nodes_that_cannot_start_cause_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.settings.clusters.local.machine_cpus", lambda: 4)
    first = VALID["nodesets"][0]
    large = {**first, "cpus": 500, "cpu_request": None, "gpus": {"type": "h100", "count": 1}}
    cpus, gpus = warnings(VALID, nodesets=[large])
    assert cpus.startswith("slurmstack:nodesets[cpu].cpus: 500: this machine has 4 CPUs")
    assert gpus.startswith("slurmstack:nodesets[cpu].gpus: 1: a local cluster offers no GPUs")
    assert warnings(VALID, nodesets=[{**first, "cpus": 500, "cpu_request": 1}]) == []


def with_volume(**fields: Any) -> Values:
    """Return a stack whose nodeset has a volume outside the jail."""
    nodeset = {**VALID["nodesets"][0], "volumes": [{**SCRATCH, **fields}]}
    return {**VALID, "nodesets": [nodeset]}


def test_volume_of_a_nodeset_that_no_job_sees_causes_a_warning() -> None:
    assert warnings(with_volume()) == [
        (
            "slurmstack:nodesets[cpu].volumes[fast].path: '/scratch': jobs see only paths below"
            " /mnt/jail; write /mnt/jail/scratch, or use jail.volumes"
        )
    ]
    other = {"prolog": {"text": "#!/bin/sh\nls /data\n"}}
    assert len(warnings(with_volume(), slurm=other)) == 1


@pytest.mark.parametrize("path", ["/mnt/jail/scratch", "/var/lib/agent", "/etc/agent"])
def test_volume_for_jobs_or_system_programs_causes_no_warning(path: str) -> None:
    assert warnings(with_volume(path=path)) == []


@pytest.mark.parametrize(
    "program",
    [
        {"slurm": {"prolog": {"text": "#!/bin/sh\nls /scratch\n"}}},
        {"slurm": {"epilog": {"file": "epilog.sh"}}},
        {"health": {"script": {"file": "check.sh"}}},
    ],
)
def test_volume_that_a_node_script_may_use_causes_no_warning(program: Values) -> None:
    assert warnings(with_volume(), **program) == []


def test_volume_that_the_sites_image_may_use_causes_no_warning() -> None:
    (nodeset,) = with_volume()["nodesets"]
    image = {**nodeset, "pod": {"image": "registry.example.org/worker:1"}}
    assert warnings(VALID, nodesets=[image]) == []


TWO_PARTITIONS = [
    {"name": "short", "nodesets": ["cpu"]},
    {"name": "long", "nodesets": ["cpu", "big"]},
]


def test_partitions_without_a_default_cause_a_warning() -> None:
    (warning,) = warnings(VALID, partitions=TWO_PARTITIONS)
    assert warning == (
        "slurmstack:partitions: short, long: none of these partitions has 'default: true', so Slurm"
        " refuses jobs that name no partition; add 'default: true' to one of them"
    )
    first, second = TWO_PARTITIONS
    assert warnings(VALID, partitions=[first, {**second, "default": True}]) == []


@pytest.mark.parametrize(
    "chosen",
    [
        {"job_submit_lua": {"file": "submit.lua"}},
        {"extra": {"slurm.conf": ["PartitionName=debug Nodes=ALL Default=YES"]}},
    ],
)
def test_script_or_extra_line_may_choose_the_default_partition(chosen: Values) -> None:
    assert warnings(VALID, partitions=TWO_PARTITIONS, slurm=chosen) == []


def tree(*labels: str) -> Values:
    """Return changes of a stack: all nodes are static, and these labels define the topology."""
    nodesets = [{**VALID["nodesets"][0], "kind": "static"}]
    return {"nodesets": nodesets, "slurm": {"topology": {"kind": "tree", "labels": [*labels]}}}


def test_misspelled_level_of_the_topology_causes_a_warning() -> None:
    zone, rack = warnings(VALID, **tree("zones", "racks", "leaf"))
    assert zone == (
        "slurmstack:slurm.topology.labels: 'zones': is not the name of a level, so the deploy reads"
        " it as the key of a label; nodes without this label have no place in the topology;"
        " did you mean 'zone'?"
    )
    assert rack.endswith("did you mean 'rack'?")
    assert warnings(VALID, **tree("zone", "rack", "example.org/cabinet", "row")) == []


def test_unknown_topology_level_in_a_cloud_causes_a_warning() -> None:
    nodesets = [{**each, "kind": "static"} for each in EKS["nodesets"]]
    (warning,) = warnings(EKS, **{**tree("zone", "row"), "nodesets": nodesets})
    assert warning.startswith("slurmstack:slurm.topology.labels: 'row': is not the name of a level")


def test_qos_that_no_job_can_use_causes_a_warning() -> None:
    accounting: Values = {"qos": [{"name": "long"}], "accounts": [{"name": "physics"}]}
    (warning,) = warnings(VALID, accounting=accounting)
    assert warning == (
        "slurmstack:accounting.qos[long]: no account, user or partition has this QOS in its setting"
        " 'qos', so Slurm refuses jobs that request it, unless an administrator allows it with"
        " sacctmgr; add it to accounting.accounts[].qos"
    )
    anyone = {**accounting, "enforce": ["associations"]}
    assert warnings(VALID, accounting=anyone) == []


@pytest.mark.parametrize(
    "account",
    [
        {"qos": ["long"]},
        {"default_qos": "long"},
        {"users": [{"name": "student", "qos": ["long"]}]},
    ],
)
def test_qos_of_an_account_or_user_causes_no_warning(account: Values) -> None:
    accounts = [{"name": "physics", **account}]
    assert warnings(VALID, accounting={"qos": [{"name": "long"}], "accounts": accounts}) == []


def test_qos_of_a_partition_causes_no_warning() -> None:
    partition = {"name": "main", "nodesets": ["cpu"], "default": True, "qos": "long"}
    accounting = {"qos": [{"name": "long"}]}
    assert warnings(VALID, accounting=accounting, partitions=[partition]) == []


def test_limit_on_an_unknown_gpu_type_causes_a_warning() -> None:
    accounts = [{"name": "physics", "grp_tres": {"gres/gpu:h10": 8, "gres/gpu": 8, "cpu": 1}}]
    (warning,) = warnings(NEBIUS, accounting={"accounts": accounts})
    assert warning == (
        "slurmstack:accounting.accounts[physics].grp_tres.gres/gpu:h10: no node has this resource,"
        " so Slurm may refuse the limit; did you mean 'gres/gpu:h100'?"
    )
    tracked = {"extra": {"slurm.conf": ["AccountingStorageTRES=gres/gpu,gres/gpu:h10"]}}
    assert warnings(NEBIUS, accounting={"accounts": accounts}, slurm=tracked) == []


def test_shell_that_the_jail_may_not_have_causes_a_warning() -> None:
    users = [{"name": "ada", "uid": 2000, "shell": "/bin/zsh"}]
    assert warnings(VALID, users=users) == [
        (
            "slurmstack:users[ada].shell: /bin/zsh: the jail's image does not have this shell, so"
            " the user cannot log in unless you install the shell in the jail; install it, or use"
            " /bin/bash"
        )
    ]


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/sh", "/usr/sbin/nologin", "/opt/zsh"])
def test_shell_of_the_jail_or_of_a_volume_causes_no_warning(shell: str) -> None:
    users = [{"name": "ada", "uid": 2000, "shell": shell}]
    jail = {"volumes": [{"name": "opt", "path": "/opt", "claim": "opt"}]}
    assert warnings(VALID, users=users, jail=jail) == []


def test_several_mig_profiles_with_the_standard_image_cause_a_warning() -> None:
    site = {**EXISTING, "registry": "registry.example.org"}
    mig = {"1g.10gb": 3, "4g.40gb": 1}
    nodeset = {**VALID["nodesets"][0], "gpus": {"type": "h100", "count": 1, "mig": mig}}
    (warning,) = warnings(site, nodesets=[nodeset])
    assert warning == (
        "slurmstack:nodesets[cpu].gpus.mig: 1g.10gb, 4g.40gb: only NVIDIA's library distinguishes"
        " the profiles, and the stack's image does not use it; set pod.image to an image with the"
        " package slurm-wlm-nvml-plugin, or use one profile"
    )
    image = {**nodeset, "pod": {"image": "registry.example.org/worker:1"}}
    assert warnings(site, nodesets=[image]) == []
    nodeset["gpus"]["mig"] = {"1g.10gb": 7}
    assert warnings(site, nodesets=[nodeset]) == []


@pytest.mark.parametrize(
    ("schedule", "keep", "daily"),
    [
        ("* * * * *", 7, 1440),
        ("*/15 * * * *", 95, 96),
        ("0,30 8-17 * * 1-5", 19, 20),
        ("*/15 * * * *", 96, None),
        ("0 * * * *", 7, None),
        ("47 2 * * *", 1, None),
    ],
)
def test_snapshots_that_cover_less_than_a_day_cause_a_warning(
    schedule: str, keep: int, daily: int | None
) -> None:
    snapshots = {"state": "fast", "schedule": schedule, "keep": keep}
    found = warnings(VALID, snapshots=snapshots)
    expected = (
        f"slurmstack:snapshots.schedule: '{schedule}': makes {daily} snapshots a day, but"
        f" snapshots.keep is {keep}, so the kept snapshots cover less than a day; run the"
        " schedule less often, or raise snapshots.keep"
    )
    assert found == ([expected] if daily else [])


def test_nodes_on_lost_machines_cause_a_warning() -> None:
    machines = [
        {**machine, "lost": machine["name"] in ("cpu-a", "cpu-b", "spare")}
        for machine in METAL["cluster"]["machines"]
    ]
    cluster = {**METAL["cluster"], "machines": machines}
    login = {"service": "LoadBalancer"}
    (warning,) = warnings(ON_CLASSES, cluster=cluster, login=login)
    assert warning == (
        "slurmstack:nodesets[cpu].replicas: 4: only 2 machines of the nodeset remain, because "
        "cpu-a, cpu-b are marked as lost, so pods stay pending; lower 'replicas', or add machines"
    )
    gpu, cpu = METAL["nodesets"]
    nodesets = [gpu, {**cpu, "replicas": 2}]
    assert warnings(ON_CLASSES, cluster=cluster, login=login, nodesets=nodesets) == []
