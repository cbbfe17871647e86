"""Accounting options in slurm.conf and slurmdbd.conf."""

from typing import Any

import pytest

from components.slurmconf import accounting_files, config_files
from tests.support.parsed import options
from tests.support.stack import FULL, settings

GPUS = {"name": "gpu", "replicas": 1, "cpus": 8, "memory": "64GiB"}


def conf(**fields: Any) -> dict[str, str]:
    """Return slurm.conf of a stack whose settings have these fields."""
    return options(config_files(settings(lambda values: values.update(fields)))["slurm.conf"])


def dbd(**fields: Any) -> dict[str, str]:
    return options(accounting_files(settings(lambda v: v.update(fields)))["slurmdbd.conf"])


def test_slurmctld_sends_jobs_and_their_usage_to_slurmdbd() -> None:
    found = conf()

    assert found["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert found["AccountingStorageHost"] == "accounting.slurm.svc.cluster.local"
    assert found["AccountingStoragePort"] == "6819"
    assert found["JobAcctGatherType"] == "jobacct_gather/cgroup"
    assert found["JobAcctGatherFrequency"] == "task=30"


def test_disabled_accounting_stores_and_samples_nothing() -> None:
    found = conf(accounting={"enabled": False})

    assert found["AccountingStorageType"] == "accounting_storage/none"
    assert found["JobAcctGatherType"] == "jobacct_gather/none"
    assert "AccountingStorageHost" not in found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"slurm": {"cgroups": "disabled"}}, {"JobAcctGatherType": "jobacct_gather/linux"}),
        ({"accounting": {"gather_interval": 5}}, {"JobAcctGatherFrequency": "task=5"}),
        ({"accounting": {"energy": "rapl"}}, {"AcctGatherEnergyType": "acct_gather_energy/rapl"}),
        ({"accounting": {"store_scripts": True}}, {"AccountingStoreFlags": "job_script"}),
        ({"accounting": {"store_environments": True}}, {"AccountingStoreFlags": "job_env"}),
        (
            {"accounting": {"store_scripts": True, "store_environments": True}},
            {"AccountingStoreFlags": "job_script,job_env"},
        ),
        ({"slurm": {"private_data": ["users", "jobs"]}}, {"PrivateData": "jobs,users"}),
        (
            {"nodesets": [{**GPUS, "gpus": {"type": "h100", "count": 8}}]},
            {"AccountingStorageTRES": "gres/gpu,gres/gpu:h100"},
        ),
        (
            {"nodesets": [{**GPUS, "gpus": {"type": "a100", "count": 8, "mig": {"1g.10gb": 7}}}]},
            {"AccountingStorageTRES": "gres/gpu,gres/gpu:1g.10gb"},
        ),
    ],
)
def test_each_setting_sets_its_options_in_slurm_conf(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    found = conf(**fields)

    assert found.items() >= expected.items()
    assert expected.items() - conf().items(), "the setting must change a default"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"accounting": {"purge": {"jobs": "24months"}}},
            {"PurgeJobAfter": "24months", "ArchiveJobs": "no"},
        ),
        (
            {"accounting": {"purge": {"jobs": "24months"}, "archive": {}}},
            {"ArchiveJobs": "yes", "ArchiveDir": "/var/spool/slurmdbd"},
        ),
        ({"accounting": {"purge": {"usage": "90days"}}}, {"PurgeUsageAfter": "90days"}),
        ({"slurm": {"private_data": ["nodes", "jobs"]}}, {"PrivateData": "jobs"}),
        ({"auth": {"type": "slurm"}}, {"AuthType": "auth/slurm", "AuthInfo": "disable_sack"}),
        (
            {"accounting": {"external": {"host": "db.lab", "password_secret": "s", "name": "x"}}},
            {"StorageHost": "db.lab", "StoragePort": "3306", "StorageLoc": "x"},
        ),
    ],
)
def test_each_setting_sets_its_options_in_slurmdbd_conf(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert dbd(**fields).items() >= expected.items()
    assert expected.items() - dbd().items(), "the setting must change a default"


def test_accounting_files_contain_no_password() -> None:
    for text in accounting_files(settings(base=FULL | {"rest": {}})).values():
        assert "pass" not in text.lower().replace("password is added", "")
