"""The settings refuse what cannot work, in one line that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.settings import (
    STACK_SCHEMA,
    LocalCluster,
    SettingsError,
    from_config,
    read_stack,
    stack_schema,
)
from tests.unit.components.stack import config, settings

Edit = Callable[[dict[str, Any]], object]

REFUSED: list[tuple[str, Edit, str]] = [
    (
        "an unknown key",
        lambda v: v.update(nodeset=[]),
        "slurmstack:nodeset: unknown key; did you mean 'nodesets'?",
    ),
    (
        "an unknown key deep inside",
        lambda v: v["nodesets"][0].update(replcas=1),
        "slurmstack:nodesets[0].replcas: unknown key; did you mean 'replicas'?",
    ),
    (
        "a key of the other kind of cluster",
        lambda v: v["cluster"].update(context="x"),
        "slurmstack:cluster.context: unknown key",
    ),
    (
        "a cluster of unknown kind",
        lambda v: v["cluster"].update(kind="moon"),
        "slurmstack:cluster.kind: expected one of existing, local",
    ),
    (
        "a missing key",
        lambda v: v.pop("cluster_name"),
        "slurmstack:cluster_name: is required; add it",
    ),
    (
        "negative replicas",
        lambda v: v["nodesets"][0].update(replicas=-1),
        "slurmstack:nodesets[0].replicas: -1: expected greater than or equal to 0",
    ),
    (
        "memory without a unit",
        lambda v: v["nodesets"][0].update(memory=2048),
        "slurmstack:nodesets[0].memory: 2048: expected a number with its unit",
    ),
    (
        "memory of an unknown unit",
        lambda v: v["nodesets"][0].update(memory="2 gigs"),
        'slurmstack:nodesets[0].memory: "2 gigs": expected a number with its unit',
    ),
    (
        "more CPUs reserved than there are",
        lambda v: v["nodesets"][0].update(cpu_request=3),
        "slurmstack:nodesets[0].cpu_request: 3: expected at most cpus, which is 2",
    ),
    (
        "two nodesets with one name",
        lambda v: v["nodesets"][1].update(name="cpu"),
        "slurmstack:nodesets: two are named 'cpu'; give each a name of its own",
    ),
    (
        "a nodeset whose nodes' names would be no DNS labels",
        lambda v: v["nodesets"][0].update(name="CPU_1"),
        'slurmstack:nodesets[0].name: "CPU_1": expected a DNS label',
    ),
    (
        "a nodeset named like another component",
        lambda v: v["nodesets"][0].update(name="controller"),
        "slurmstack:nodesets[0].name",
    ),
    (
        "a nodeset whose nodes' names would be too long",
        lambda v: v["nodesets"][0].update(name="a" * 60),
        "slurmstack:nodesets[0].name",
    ),
    (
        "a partition of an unknown nodeset",
        lambda v: v.update(partitions=[{"name": "main", "nodesets": ["cpus"]}]),
        "slurmstack:partitions[0].nodesets: 'cpus' is no nodeset; did you mean 'cpu'?",
    ),
    (
        "two default partitions",
        lambda v: v.update(
            partitions=[
                {"name": name, "nodesets": ["cpu"], "default": True} for name in ("one", "two")
            ]
        ),
        "slurmstack:partitions: one and two are all the default; keep one",
    ),
    (
        "two users with one id",
        lambda v: v["users"][1].update(uid=2000),
        "slurmstack:users: two have the uid 2000",
    ),
    (
        "a system's user id",
        lambda v: v["users"][0].update(uid=0),
        "slurmstack:users[0].uid: 0: expected greater than or equal to 1000",
    ),
    (
        "an SSH key that is none",
        lambda v: v["users"][0].update(ssh_keys=["hunter2"]),
        'slurmstack:users[0].ssh_keys[0]: "hunter2": expected an OpenSSH public key',
    ),
    (
        "an SSH key that was cut short",
        lambda v: v["users"][0].update(ssh_keys=["ssh-ed25519 AAAA"]),
        "was it cut short?",
    ),
    (
        "a local cluster without a port to log in by",
        lambda v: v.update(login={}),
        "slurmstack:login: a local cluster needs service: NodePort and a node_port",
    ),
]


@pytest.mark.parametrize(("what", "edit", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_it_refuses(what: str, edit: Edit, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_config(config(edit))

    text = str(caught.value)
    assert message in text
    assert "\n" not in text, "a user must get one line"


def test_a_private_key_is_refused_and_not_repeated() -> None:
    def use_private(values: dict[str, Any]) -> None:
        values["users"][0]["ssh_keys"] = ["-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0" * 4]

    with pytest.raises(SettingsError, match="is a private key") as caught:
        from_config(config(use_private))

    assert "c2VjcmV0c2VjcmV0" not in str(caught.value)


@given(number=st.integers(1, 4096), unit=st.sampled_from(["Mi", "MiB", "Gi", "GiB", "Ti"]))
def test_memory_is_kept_in_mebibytes(number: int, unit: str) -> None:
    parsed = settings(lambda v: v["nodesets"][0].update(memory=f"{number}{unit}"))

    factor = {"M": 1, "G": 2**10, "T": 2**20}[unit[0]]
    assert parsed.nodesets[0].memory == number * factor


def test_keys_of_other_packages_are_not_judged() -> None:
    assert from_config({**config(), "kubernetes:context": "elsewhere"}) == settings()


def test_a_stack_file_says_the_same_as_what_pulumi_hands_over(tmp_path: Path) -> None:
    values = {key: yaml.safe_load(value) for key, value in config().items()}
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": values}))

    assert read_stack("lab", tmp_path) == settings()


def test_settings_without_partitions_get_one_over_all_nodesets() -> None:
    (partition,) = settings().queues()

    assert (partition.name, partition.nodesets, partition.default) == ("main", ("cpu", "big"), True)


def test_a_stack_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text("config: {}\n")

    with pytest.raises(SettingsError, match=r"no stack 'dev'.*stacks here: lab"):
        read_stack("dev", tmp_path)


def test_a_stack_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text("config: [")

    with pytest.raises(SettingsError, match=r"Pulumi\.dev\.yaml: not YAML") as caught:
        read_stack("dev", tmp_path)
    assert "\n" not in str(caught.value)


def test_the_committed_dev_stack_is_valid() -> None:
    dev = read_stack("dev", STACK_SCHEMA.parent.parent)

    assert isinstance(dev.cluster, LocalCluster)


def test_the_committed_schema_is_the_models() -> None:
    committed = json.loads(STACK_SCHEMA.read_text())

    assert committed == json.loads(json.dumps(stack_schema())), "stale: run `make schema`"


def test_every_stack_file_names_the_schema_and_has_no_key_outside_it() -> None:
    root = STACK_SCHEMA.parent.parent
    known = stack_schema()["properties"]["config"]["properties"]
    for path in root.glob("Pulumi.*.yaml"):
        text = path.read_text()
        assert f"$schema={STACK_SCHEMA.relative_to(root)}" in text.splitlines()[0], path.name
        assert set(yaml.safe_load(text)["config"]) <= set(known), path.name
