"""Nodes, GPUs and partitions in Slurm's configuration."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from components.settings import Nodeset, Partition, Settings
from components.slurmconf import config_digest, config_files, node_conf
from tests.support.parsed import options, records, words
from tests.support.stack import FULL, settings

Values = dict[str, Any]

GPU: Values = {
    "name": "gpu",
    "replicas": 2,
    "cpus": 64,
    "memory": "512GiB",
    "gpus": {"type": "h100", "count": 8},
}


def nodeset(**fields: Any) -> Nodeset:
    return Nodeset.model_validate(
        {"name": "n", "replicas": 4, "cpus": 16, "memory": "8GiB", **fields}
    )


def files(*nodesets: Values, **further: Any) -> dict[str, str]:
    return config_files(settings(lambda v: v.update(nodesets=list(nodesets), **further)))


# --- GPUs ----------------------------------------------------------------------------------------


def gres(**gpus: Any) -> dict[str, str]:
    return files({**GPU, "gpus": {**GPU["gpus"], **gpus}})


def test_slurm_conf_lists_gres_types_and_gres_conf_disables_autodetect() -> None:
    assert options(gres()["gres.conf"]) == {"AutoDetect": "off"}
    assert options(gres()["slurm.conf"])["GresTypes"] == "gpu"
    assert options(gres(shards=4)["slurm.conf"])["GresTypes"] == "gpu,shard"
    assert options(gres(mig={"1g.10gb": 4})["slurm.conf"])["GresTypes"] == "gpu"


ALL = {"NodeName": "gpu-[0-9999]", "Name": "gpu"}


@pytest.mark.parametrize(
    ("gpus", "lines"),
    [
        ({}, [{**ALL, "Type": "h100", "File": "/dev/gpu[1-8]"}]),
        (
            {"shards": 4},
            [
                {**ALL, "Type": "h100", "File": "/dev/gpu[1-8]"},
                {**ALL, "Name": "shard", "Count": "32"},
            ],
        ),
        (
            {"mig": {"3g.40gb": 1, "1g.10gb": 4}},
            [
                {**ALL, "Type": "1g.10gb", "File": "/dev/gpu[1-4]"},
                {**ALL, "Type": "3g.40gb", "File": "/dev/gpu[5-5]"},
            ],
        ),
    ],
    ids=["whole GPUs", "shards", "slices"],
)
def test_gres_conf_lists_the_gpus_of_a_node(gpus: Values, lines: list[Values]) -> None:
    assert records(gres(**gpus)["gres.conf"], "NodeName") == lines


def test_clusters_without_gpus_have_no_gres() -> None:
    found = config_files(settings())

    assert "gres.conf" not in found
    assert "GresTypes" not in options(found["slurm.conf"])


# --- Nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"CPUs": "16", "RealMemory": "7168", "Feature": "n"}),
        ({"features": ["b", "a"]}, {"Feature": "n,a,b"}),
        ({"sockets": 2}, {"Sockets": "2", "CoresPerSocket": "8", "ThreadsPerCore": "1"}),
        ({"threads_per_core": 2}, {"Sockets": "1", "CoresPerSocket": "8", "ThreadsPerCore": "2"}),
        (
            {"sockets": 2, "threads_per_core": 2},
            {"Sockets": "2", "CoresPerSocket": "4", "ThreadsPerCore": "2"},
        ),
        ({"weight": 7}, {"Weight": "7"}),
        ({"parameters": {"TmpDisk": 1000}}, {"TmpDisk": "1000"}),
        ({"parameters": {"realmemory": 100}}, {"realmemory": "100"}),
        ({"gpus": {"type": "h100", "count": 8}}, {"Gres": "gpu:h100:8"}),
        ({"gpus": {"type": "h100", "count": 8, "shards": 4}}, {"Gres": "gpu:h100:8,shard:32"}),
        (
            {"gpus": {"type": "a100", "count": 1, "mig": {"3g.40gb": 1, "1g.10gb": 4}}},
            {"Gres": "gpu:1g.10gb:4,gpu:3g.40gb:1"},
        ),
    ],
)
def test_node_declares_its_resources(fields: Values, expected: dict[str, str]) -> None:
    found = words(node_conf(nodeset(**fields)))

    assert {key: found.get(key) for key in expected} == expected


def test_node_parameter_in_the_settings_replaces_the_derived_one() -> None:
    found = words(node_conf(nodeset(parameters={"realmemory": 100, "WEIGHT": 3}, weight=7)))

    assert [key for key in found if key.lower() == "realmemory"] == ["realmemory"]
    assert [key for key in found if key.lower() == "weight"] == ["WEIGHT"]


def test_slurm_conf_defines_only_static_nodes() -> None:
    found = files({**GPU, "kind": "static"}, {**GPU, "name": "cpu", "gpus": None})

    (line,) = records(found["slurm.conf"], "NodeName")
    assert line == {
        "NodeName": "gpu-[0-1]",
        **words(node_conf(Nodeset.model_validate(GPU))),
        "State": "CLOUD",
        "NodeAddr": "192.0.2.1",
    }
    assert "SlurmctldPrimaryOnProg" in options(found["slurm.conf"])


def test_slurm_conf_does_not_define_dynamic_nodes() -> None:
    for nodesets in ([GPU], [{**GPU, "kind": "static", "replicas": 0}]):
        text = files(*nodesets)["slurm.conf"]
        assert records(text, "NodeName") == []
        assert "SlurmctldPrimaryOnProg" not in options(text)


# --- Partitions ----------------------------------------------------------------------------------


def partition(**fields: Any) -> dict[str, str]:
    """Return the options of a partition of the nodeset `cpu`, parsed from slurm.conf."""
    one = {"name": "main", "nodesets": ["cpu"], **fields}
    further: Values = {"partitions": [one], "groups": [{"name": "lab", "gid": 5000}]}
    if {"preempt_mode", "grace_time"} & set(fields):
        further["slurm"] = {"preemption": {"type": "partition_prio"}}
    text = config_files(settings(lambda v: v.update(further)))["slurm.conf"]
    (found,) = records(text, "PartitionName")
    return found


PLAIN = {
    "PartitionName": "main",
    "Nodes": "cpu",
    "Default": "NO",
    "DefMemPerCPU": "896",
    "MaxTime": "UNLIMITED",
    "State": "UP",
    "OverSubscribe": "NO",
}
PARTITIONS: list[tuple[str, Any, dict[str, str]]] = [
    ("default", True, {"Default": "YES"}),
    ("state", "drain", {"State": "DRAIN"}),
    ("max_time", "2-00:00:00", {"MaxTime": "2-00:00:00"}),
    ("default_time", "04:00:00", {"DefaultTime": "04:00:00"}),
    ("min_nodes", 0, {"MinNodes": "0"}),
    ("max_nodes", 4, {"MaxNodes": "4"}),
    ("memory_per_cpu", "2GiB", {"DefMemPerCPU": "2048"}),
    ("memory_per_gpu", "64GiB", {"DefMemPerGPU": "65536"}),
    ("priority_tier", 0, {"PriorityTier": "0"}),
    ("priority_job_factor", 65535, {"PriorityJobFactor": "65535"}),
    ("preempt_mode", "suspend", {"PreemptMode": "SUSPEND"}),
    ("grace_time", 0, {"GraceTime": "0"}),
    ("qos", "normal", {"QOS": "normal"}),
    ("allow_qos", ["a", "b"], {"AllowQos": "a,b"}),
    ("deny_qos", ["a", "b"], {"DenyQos": "a,b"}),
    ("allow_accounts", ["a", "b"], {"AllowAccounts": "a,b"}),
    ("allow_groups", ["lab", "student"], {"AllowGroups": "lab,student"}),
    ("hidden", True, {"Hidden": "YES"}),
    ("exclusive", True, {"OverSubscribe": "EXCLUSIVE"}),
    ("over_subscribe", "force", {"OverSubscribe": "FORCE"}),
    ("parameters", {"LLN": True, "MaxCPUsPerNode": 8}, {"LLN": "YES", "MaxCPUsPerNode": "8"}),
    ("nodesets", ["cpu", "big"], {"Nodes": "big,cpu"}),
    ("name", "other", {"PartitionName": "other"}),
]


@pytest.mark.parametrize(
    ("field", "value", "expected"), PARTITIONS, ids=[field for field, _, _ in PARTITIONS]
)
def test_each_partition_field_sets_only_its_option(
    field: str, value: Any, expected: dict[str, str]
) -> None:
    assert partition(**{field: value}) == {**PLAIN, **expected}


def test_cases_cover_every_partition_field() -> None:
    assert {field for field, _, _ in PARTITIONS} == set(Partition.model_fields)


def test_partition_parameter_in_the_settings_replaces_the_derived_one() -> None:
    found = partition(max_time="60", parameters={"maxtime": 30})

    assert [(key, value) for key, value in found.items() if key.lower() == "maxtime"] == [
        ("maxtime", "30")
    ]


@pytest.mark.parametrize(
    ("gpus", "share"),
    [
        # A node with 512 GiB reserves 4 GiB for its daemons.
        ([GPU["gpus"]], "65024"),
        ([{**GPU["gpus"], "mig": {"1g.10gb": 4}}], "130048"),
        ([{**GPU["gpus"], "count": 4}, GPU["gpus"]], "65024"),
        ([GPU["gpus"], None], None),
        ([None], None),
    ],
    ids=["eight GPUs", "slices", "the smallest share", "one nodeset without GPUs", "no GPUs"],
)
def test_default_memory_per_gpu_divides_node_memory_by_gpus(
    gpus: list[Values | None], share: str | None
) -> None:
    nodesets = [{**GPU, "name": f"n{n}", "gpus": each} for n, each in enumerate(gpus)]
    one = {"name": "main", "nodesets": [nodeset["name"] for nodeset in nodesets]}

    (found,) = records(files(*nodesets, partitions=[one])["slurm.conf"], "PartitionName")

    assert found.get("DefMemPerGPU") == share


# --- All files ------------------------------------------------------------------------------------


def shuffled(value: Any, order: random.Random) -> Any:
    """Return a copy of the value that has the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = order.sample(sorted(value), len(value))
        return {key: shuffled(value[key], order) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, order) for item in value]
    return value


@pytest.mark.parametrize("seed", range(20))
def test_order_of_keys_and_lists_does_not_change_the_files(seed: int, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    order = random.Random(seed)
    values = json.loads(json.dumps(FULL))
    values["slurm"]["scheduler"]["parameters"] = {"bf_window": 60, "defer": True, "assoc_limit": 1}
    values["nodesets"][1]["gpus"]["mig"] = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
    values["nodesets"][0]["parameters"] = {"TmpDisk": 1, "MemSpecLimit": 2, "CoreSpecCount": 1}
    other = shuffled(values, order)
    order.shuffle(other["nodesets"])
    for part in other["partitions"]:
        order.shuffle(part["nodesets"])

    assert other != values or json.dumps(other) != json.dumps(values)
    assert all_of(settings(base=other), tmp_path) == all_of(settings(base=values), tmp_path)


def all_of(stack: Settings, root: Path) -> list[tuple[str, str]]:
    return [*config_files(stack, root).items(), ("mark", config_digest(stack, root))]


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_configuration_of_ten_thousand_nodes_fits_into_a_configmap(kind: str) -> None:
    nodesets = [
        {**GPU, "name": f"gpu-of-rack-{n}", "kind": kind, "replicas": 50, "features": ["nvlink"]}
        for n in range(200)
    ]
    partitions = [
        {"name": f"rack-{nodeset['name']}", "nodesets": [nodeset["name"]]} for nodeset in nodesets
    ] + [{"name": "all", "nodesets": [nodeset["name"] for nodeset in nodesets]}]

    found = files(*nodesets, partitions=partitions)

    # A ConfigMap and a request to etcd are limited to about 1 MiB. Two versions of the
    # configuration may be in use at the same time.
    assert sum(map(len, found.values())) < 256 * 1024
