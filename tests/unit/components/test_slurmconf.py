"""Rendered files of Slurm, parsed and compared as data."""

import pytest

from components.settings import Nodeset
from components.slurmconf import (
    accounting_files,
    config_files,
    max_node_count,
    node_conf,
    real_memory,
)
from tests.support.parsed import options, records
from tests.support.stack import settings


def nodeset(memory: int) -> Nodeset:
    return Nodeset.model_validate({"name": "n", "replicas": 1, "cpus": 1, "memory": f"{memory}MiB"})


def test_slurmctldhost_has_the_pod_name_and_the_service_address() -> None:
    slurm = options(config_files(settings())["slurm.conf"])

    assert slurm["ClusterName"] == "test"
    assert slurm["SlurmctldHost"] == "controller-0(controller.slurm.svc.cluster.local)"
    assert "enable_configless" in slurm["SlurmctldParameters"].split(",")


def test_munge_credential_is_valid_for_only_one_message() -> None:
    wanted = "block_null_hash,block_zero_hash"

    assert options(config_files(settings())["slurm.conf"])["CommunicationParameters"] == wanted
    slurmdbd = options(accounting_files(settings())["slurmdbd.conf"])
    assert slurmdbd["CommunicationParameters"] == wanted


def test_mpi_of_job_steps_opens_no_listening_ports() -> None:
    given = options(config_files(settings())["mpi.conf"])["PMIxEnv"]

    assert "SLURM_PMIX_DIRECT_CONN=false" in given.split(";")


def test_pmix_does_not_use_munge_which_images_may_lack() -> None:
    given = options(config_files(settings())["mpi.conf"])["PMIxEnv"]

    assert "PMIX_MCA_psec=native" in given.split(";")


def test_nodesets_have_a_feature_and_are_in_the_default_partition() -> None:
    text = config_files(settings())["slurm.conf"]

    assert records(text, "NodeSet") == [
        {"NodeSet": "big", "Feature": "big"},
        {"NodeSet": "cpu", "Feature": "cpu"},
    ]
    (partition,) = records(text, "PartitionName")
    assert partition["Nodes"] == "big,cpu"
    assert partition["Default"] == "YES"


def test_default_memory_per_cpu_is_the_lowest_of_all_nodes() -> None:
    (partition,) = records(config_files(settings())["slurm.conf"], "PartitionName")

    # cpu: (2048 - 256) / 2 CPUs; big: (65536 - 4096) / 8 CPUs.
    assert partition["DefMemPerCPU"] == "896"


def test_partitions_in_the_settings_replace_the_default_partition() -> None:
    chosen = [
        {"name": "short", "nodesets": ["cpu"], "default": True},
        {"name": "long", "nodesets": ["cpu", "big"]},
    ]

    text = config_files(settings(lambda v: v.update(partitions=chosen)))["slurm.conf"]

    assert [
        (record["PartitionName"], record["Nodes"], record["Default"])
        for record in records(text, "PartitionName")
    ] == [("short", "cpu", "YES"), ("long", "big,cpu", "NO")]


def test_cluster_without_nodesets_has_no_partitions() -> None:
    text = config_files(settings(lambda v: v.update(nodesets=[])))["slurm.conf"]

    assert records(text, "PartitionName") == []


def test_jail_plugin_is_required_and_binds_absolute_paths() -> None:
    line, _ = [
        line
        for line in config_files(settings())["plugstack.conf"].splitlines()
        if line and not line.startswith("#")
    ]
    kind, plugin, *arguments = line.split()

    assert kind == "required", "a step must not start without the jail"
    assert plugin.endswith("/chroot.so")
    assert ("jail", "/mnt/jail") in {tuple(word.split("=", 1)) for word in arguments}
    assert all(word.split("=", 1)[1].startswith("/") for word in arguments)


def test_node_declares_its_cpus_memory_and_features() -> None:
    big = settings().nodesets[1]

    assert node_conf(big) == "CPUs=8 RealMemory=61440 Feature=big,fast"


@pytest.mark.parametrize(
    ("limit", "offered"), [(1024, 896), (2048, 1792), (65536, 61440), (2097152, 2093056)]
)
def test_slurm_offers_less_memory_than_the_pod_may_use(limit: int, offered: int) -> None:
    assert real_memory(nodeset(limit)) == offered


@pytest.mark.parametrize(("replicas", "room"), [(0, 1024), (500, 1024), (600, 2048), (5000, 16384)])
def test_max_node_count_allows_twice_the_nodes(replicas: int, room: int) -> None:
    grown = settings(lambda v: v.update(nodesets=[{**v["nodesets"][0], "replicas": replicas}]))

    assert max_node_count(grown) == room
