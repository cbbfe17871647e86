"""Warnings of a deploy about settings that are valid, but probably not complete."""

from typing import Any

import pytest

from tests.support.clouds import EKS, METAL, NEBIUS
from tests.support.stack import VALID, settings

Values = dict[str, Any]
EXISTING: Values = {**VALID, "cluster": {"kind": "existing"}}


def warnings(values: Values, **changes: Any) -> list[str]:
    return list(settings(base={**values, **changes}).warnings())


@pytest.mark.parametrize("values", [VALID, EKS, NEBIUS])
def test_complete_settings_cause_no_warning(values: Values) -> None:
    assert warnings(values) == []


def test_existing_cluster_without_a_registry_causes_a_warning() -> None:
    (warning,) = warnings(EXISTING)
    assert warning.startswith("slurmstack:registry: is not set")
    assert warning.endswith("; add registry")
    assert warnings(EXISTING, registry="registry.example.org") == []


def test_own_machines_without_network_plugin_and_storage_cause_warnings() -> None:
    found = warnings(METAL, network={}, jail={})
    assert [warning.split(": ")[0] for warning in found] == [
        "slurmstack:network.cilium",
        "slurmstack:jail.storage_class",
    ]
    assert warnings(METAL, network={"cilium": {}}, jail={"storage_class": "fast"}) == []


def test_several_large_machines_without_efa_cause_a_warning() -> None:
    machines = {**EKS["cluster"]["machines"], "gpu": {"type": "p5.48xlarge"}}
    (warning,) = warnings(EKS, cluster={**EKS["cluster"], "machines": machines})
    assert warning.startswith("slurmstack:cluster.machines.gpu.efa: is not set")
    assert "p5.48xlarge" in warning


def test_fabric_and_checks_of_its_ports_are_set_together() -> None:
    plain = [{**nodeset, "features": []} for nodeset in NEBIUS["nodesets"]]
    (warning,) = warnings(NEBIUS, nodesets=plain)
    assert warning == (
        "slurmstack:cluster.machines.gpu.fabric: 'fabric-6': the ports of the nodes are not"
        " checked; add features: [infiniband] to nodeset gpu"
    )

    checked = [{**nodeset, "features": ["infiniband"]} for nodeset in NEBIUS["nodesets"]]
    (warning,) = warnings(NEBIUS, nodesets=checked)
    assert warning.startswith("slurmstack:nodesets[cpu].features: infiniband: the machines have no")


def test_partition_for_an_unknown_account_causes_a_warning() -> None:
    partition = {"name": "main", "nodesets": ["cpu"], "allow_accounts": ["physic", "root"]}
    accounts = {"accounts": [{"name": "physics", "description": "P"}]}
    (warning,) = warnings(VALID, partitions=[partition], accounting=accounts)
    assert warning == (
        "slurmstack:partitions[main].allow_accounts: 'physic' is not in accounting.accounts; "
        "did you mean 'physics'?"
    )
    # Without accounts in the settings, operators create them with sacctmgr.
    assert warnings(VALID, partitions=[partition]) == []


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        ({"slurm": {"preemption": {"type": "qos"}}}, "slurm.preemption.type: qos"),
        (
            {"slurm": {"priority": {"type": "multifactor", "fairshare": 5}}},
            "slurm.priority.fairshare: 5",
        ),
        (
            {"partitions": [{"name": "main", "nodesets": ["cpu"], "allow_qos": ["high"]}]},
            "partitions[main].allow_qos: high",
        ),
    ],
)
def test_settings_that_require_accounting_cause_a_warning_without_it(
    edit: Values, key: str
) -> None:
    (warning,) = warnings(VALID, accounting={"enabled": False}, **edit)
    assert warning.startswith(f"slurmstack:{key}: has no effect without accounting")


def test_scheduler_parameter_that_slurm_ignores_causes_a_warning() -> None:
    parameters = {"BF_Max_Tim": 120, "BF_Window": 600, "defer": True, "max_rpc_count": 10}
    (warning,) = warnings(VALID, slurm={"scheduler": {"parameters": parameters}})
    assert warning == (
        "slurmstack:slurm.scheduler.parameters.BF_Max_Tim: is unknown to Slurm 24.11; "
        "did you mean 'bf_max_time'?"
    )


def test_qos_with_preempt_causes_a_warning_if_preemption_is_disabled() -> None:
    accounting = {"qos": [{"name": "high", "preempt": ["normal"]}]}
    (warning,) = warnings(VALID, accounting=accounting)
    assert warning == (
        "slurmstack:accounting.qos[high].preempt: normal: has no effect with "
        "slurm.preemption.type: none; set slurm.preemption.type: qos"
    )


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"allow_qos": ["hihg"]}, "allow_qos: 'hihg' is not in accounting.qos; did you mean"),
        ({"deny_qos": ["other"]}, "deny_qos: 'other' is not in accounting.qos; known: "),
        ({"min_nodes": 3}, "min_nodes: 3: no job can start, because its nodesets have 2 nodes"),
    ],
)
def test_partition_that_probably_refuses_all_jobs_causes_a_warning(
    fields: Values, warning: str
) -> None:
    partition = {"name": "main", "nodesets": ["cpu"], **fields}
    (found,) = warnings(VALID, partitions=[partition], accounting={"qos": [{"name": "high"}]})
    assert found.startswith(f"slurmstack:partitions[main].{warning}")


def test_partition_without_nodes_and_qos_in_upper_case_cause_no_warning() -> None:
    partition = {"name": "main", "nodesets": ["cpu"], "min_nodes": 1, "allow_qos": ["NORMAL"]}
    nodeset = {**VALID["nodesets"][0], "replicas": 0}
    assert warnings(VALID, partitions=[partition], nodesets=[nodeset]) == []


def test_log_endpoint_with_the_grpc_port_causes_a_warning() -> None:
    logs = {"endpoint": "http://collector.lab:4317"}
    (warning,) = warnings(VALID, monitoring={"logs": logs})
    assert "over HTTP is usually 4318" in warning


def test_secret_with_nearly_the_name_of_another_causes_a_warning() -> None:
    secrets = {"registry": {".dockerconfigjson": {"secure": "v1:a"}}}
    (warning,) = warnings(VALID, secrets=secrets, pull_secrets=["regsitry"])
    assert warning == (
        "slurmstack:pull_secrets[0]: 'regsitry' is not in secrets; did you mean 'registry'?"
    )
    assert warnings(VALID, secrets=secrets, pull_secrets=["other"]) == []


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "db_password"])
def test_credential_in_the_environment_of_jobs_causes_a_warning(name: str) -> None:
    containers = {"enabled": True, "environment": {name: "abc", "TOKENIZERS_PARALLELISM": "true"}}
    (warning,) = warnings(VALID, containers=containers)
    assert warning.startswith(f"slurmstack:containers.environment.{name}: looks like a credential")
    assert "abc" not in warning


def test_allowed_image_name_without_tag_or_pattern_causes_a_warning() -> None:
    allowed = ["nvcr.io/nvidia", "docker.io/*", "quay.io/a/b:1"]
    (warning,) = warnings(VALID, containers={"enabled": True, "allowed": allowed})
    assert warning.startswith("slurmstack:containers.allowed: 'nvcr.io/nvidia' permits only")
