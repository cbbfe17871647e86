"""Tests that the tools (such as `make images`) and a deploy read the same settings from a stack
file."""

from pathlib import Path

import pytest
import yaml

from components.settings import Settings, SettingsError, check_file, from_config, read_stack
from engine.config import read_stack_file
from tests.support.stack import VALID


def outcome(text: str, folder: Path) -> tuple[Settings | str, Settings | str]:
    """Return what the tools read and what a deploy reads. Each is either the settings, or an error
    without the name of the file."""
    path = folder / "Pulumi.lab.yaml"
    path.write_text(text)

    def tools() -> Settings:
        return read_stack("lab", folder)

    def deploy() -> Settings:
        return from_config(read_stack_file(path).decrypted(None)[0])

    results: list[Settings | str] = []
    for reader in (tools, deploy):
        try:
            results.append(reader())
        except SettingsError as error:
            results.append(str(error).split(": ", 1)[1])
    return results[0], results[1]


@pytest.mark.parametrize(
    "spelling",
    ["10:00:00", "1-00:00:00", "90", "off", "yes", "0o17", "1_0", "1e1", "~", "''", "2026-12-01"],
)
@pytest.mark.parametrize("key", ["PLACE_NAME", "PLACE_TIME", "PLACE_REPLICAS", "PLACE_SWITCH"])
def test_tools_and_deploy_agree_on_each_spelling(key: str, spelling: str, tmp_path: Path) -> None:
    values = {
        **VALID,
        "cluster_name": "PLACE_NAME" if key == "PLACE_NAME" else "lab",
        "protect_data": "PLACE_SWITCH" if key == "PLACE_SWITCH" else False,
        "partitions": [
            {"name": "all", "nodesets": ["cpu", "big"], "max_time": "PLACE_TIME"}
            if key == "PLACE_TIME"
            else {"name": "all", "nodesets": ["cpu", "big"]}
        ],
    }
    if key == "PLACE_REPLICAS":
        values["nodesets"] = [{**VALID["nodesets"][0], "replicas": "PLACE_REPLICAS"}]
    text = yaml.safe_dump({"config": {f"slurmstack:{k}": v for k, v in values.items()}})

    tools, deploy = outcome(text.replace(key, spelling), tmp_path)

    assert tools == deploy


def test_time_limit_in_hours_needs_no_quotes(tmp_path: Path) -> None:
    partition = {"name": "all", "nodesets": ["cpu", "big"], "max_time": "PLACE"}
    values = {**VALID, "partitions": [partition]}
    text = yaml.safe_dump({"config": {f"slurmstack:{k}": v for k, v in values.items()}})

    tools, deploy = outcome(text.replace("PLACE", "10:00:00"), tmp_path)

    assert isinstance(tools, Settings), tools
    assert tools == deploy
    assert tools.partitions[0].max_time == "10:00:00"


def test_program_refuses_a_stack_file_with_a_duplicate_key(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text(
        "config:\n  slurmstack:users: [{name: ada}]\n  slurmstack:users: []\n"
    )
    with pytest.raises(SettingsError) as caught:
        check_file("lab", tmp_path, {})
    assert str(caught.value) == (
        "Pulumi.lab.yaml: invalid YAML: line 3, column 3: "
        "duplicate key 'slurmstack:users'; keep one"
    )


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("Pulumi.other.yaml", "existing stacks: other"),
        ("Pulumi.lab.yml", "rename Pulumi.lab.yml to Pulumi.lab.yaml"),
    ],
)
def test_program_refuses_a_stack_without_a_file(file: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("config: {}\n")

    with pytest.raises(SettingsError) as caught:
        check_file("lab", tmp_path, {"kubernetes:context": "a"})

    assert str(caught.value) == f"no stack 'lab': Pulumi.lab.yaml does not exist; {remedy}"


@pytest.mark.parametrize(
    ("key", "source"),
    [("login", "Pulumi.lab.yaml"), ("jail", "the stack's configuration")],
)
def test_errors_name_the_file_that_has_the_configuration(
    key: str, source: str, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text("config: {slurmstack:login: {}}\n")
    config = {f"slurmstack:{key}": "{}", "kubernetes:context": "a"}

    with pytest.raises(SettingsError) as caught:
        from_config(config, check_file("lab", tmp_path, config))

    assert str(caught.value).startswith(f"{source}: slurmstack:cluster_name: ")


def test_program_accepts_a_configuration_from_another_file(tmp_path: Path) -> None:
    assert check_file("lab", tmp_path, {"slurmstack:login": "{}"}) == "the stack's configuration"
