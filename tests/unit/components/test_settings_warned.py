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


def test_machines_without_plugin_and_storage_cause_warnings() -> None:
    found = warnings(METAL, network={}, jail={})
    assert [warning.split(": ")[0] for warning in found] == [
        "slurmstack:network.cilium",
        "slurmstack:jail.storage_class",
    ]
    assert warnings(METAL, network={"cilium": {}}, jail={"storage_class": "fast"}) == []


def test_several_large_machines_without_adapters_cause_a_warning() -> None:
    machines = {**EKS["cluster"]["machines"], "gpu": {"type": "p5.48xlarge"}}
    (warning,) = warnings(EKS, cluster={**EKS["cluster"], "machines": machines})
    assert warning.startswith("slurmstack:cluster.machines.gpu.efa: is not set")
    assert "p5.48xlarge" in warning


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
