"""Values and sources of the settings."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.settings import (
    STACK_SCHEMA,
    SettingsError,
    read_stack,
    stack_schema,
)
from tests.support.stack import config, settings


@given(number=st.integers(128, 4096), unit=st.sampled_from(["Mi", "MiB", "Gi", "GiB", "Ti"]))
def test_memory_is_stored_in_mebibytes(number: int, unit: str) -> None:
    parsed = settings(lambda v: v["nodesets"][0].update(memory=f"{number}{unit}"))

    factor = {"M": 1, "G": 2**10, "T": 2**20}[unit[0]]
    assert parsed.nodesets[0].memory == number * factor


def test_stack_file_and_pulumi_config_give_the_same_settings(tmp_path: Path) -> None:
    values = {key: yaml.safe_load(value) for key, value in config().items()}
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": values}))

    assert read_stack("lab", tmp_path) == settings()


def test_default_partition_has_all_nodesets() -> None:
    (partition,) = settings().queues()

    assert (partition.name, partition.nodesets, partition.default) == ("main", ("cpu", "big"), True)


def test_error_for_an_unknown_stack_lists_the_existing_ones(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text("config: {}\n")

    with pytest.raises(SettingsError, match=r"no stack 'dev'.*existing stacks: lab"):
        read_stack("dev", tmp_path)


def test_committed_schema_matches_the_models() -> None:
    committed = json.loads(STACK_SCHEMA.read_text())

    assert committed == json.loads(json.dumps(stack_schema())), "stale: run `make schema`"
