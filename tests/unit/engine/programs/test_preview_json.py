"""`preview --json` prints the same content as the `pulumi` command, and needs no cluster."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from plans.protection import refusals
from plans.reading import Preview, Step, read
from tests.support.previews import RECORDED, recorded
from tests.unit.engine.programs.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Command:
    (tmp_path / "Pulumi.yaml").write_text("name: web\nruntime: python\n")
    return Command(tmp_path)


def configure(command: Command, **config: object) -> None:
    document = {"config": {f"web:{key}": value for key, value in config.items()}}
    (command.project / "Pulumi.dev.yaml").write_text(json.dumps(document))


def previewed(command: Command) -> Preview:
    return read(command("preview", "--json").stdout, "the engine")


def by_name(preview: Preview) -> Mapping[str, Step]:
    """Return the steps by name, without changes of secrets, which only this engine reports."""
    return {
        step.name: replace(step, changes=tuple(c for c in step.changes if c.old != c.new))
        for step in preview.steps
    }


def test_json_previews_of_both_engines_have_the_same_content(command: Command) -> None:
    command.write((RECORDED / "program.py").read_text())
    configure(command, length=2)
    assert command("up", "--yes").returncode == 0

    assert previewed(command).steps == recorded("same").steps

    configure(command, length=3)
    edited = previewed(command)
    assert by_name(edited) == by_name(recorded("edited"))
    assert not edited.errors
    assert "keepers.hidden" in {change.path for step in edited.steps for change in step.changes}
    assert "hush" not in str(edited)

    configure(command, length=3, bold=True)
    protected = previewed(command)
    # This engine stops at the first refusal; Pulumi's engine continues with other resources.
    assert refusals(protected)
    assert set(refusals(protected)) <= set(refusals(recorded("protected")))
    assert protected.errors
    for name, step in by_name(protected).items():
        assert step == by_name(recorded("protected"))[name]


def test_preview_reports_protected_resources_that_the_program_drops(command: Command) -> None:
    command.write((RECORDED / "program.py").read_text())
    configure(command, length=2)
    assert command("up", "--yes").returncode == 0
    command.write("")

    dropped = previewed(command)

    assert {step.op.value for step in dropped.steps} == {"delete"}
    assert len(refusals(dropped)) == 2
    assert any("because these resources are protected" in line for line in dropped.errors)


CONFIG_MAP = """
import pulumi
import pulumi_kubernetes as k8s

provider = k8s.Provider("there", kubeconfig="yet/to/come", context="lab")
k8s.core.v1.ConfigMap(
    "settings",
    metadata={"name": "settings", "namespace": "lab"},
    data={"a": "1"},
    opts=pulumi.ResourceOptions(provider=provider),
)
"""


def test_preview_works_without_a_cluster_but_deploy_fails(
    command: Command,
) -> None:
    command.write(CONFIG_MAP)

    preview = command("preview")
    assert preview.returncode == 0, preview.stderr
    assert "+ kubernetes:core/v1:ConfigMap settings create" in preview.stdout
    assert "warning: pulumi:providers:kubernetes there: kubeconfig: yet/to/come" in preview.stdout

    (step,) = previewed(command).steps
    assert step.new is not None
    assert step.new["data"] == {"a": "1"}

    up = command("up", "--yes")
    assert up.returncode == 1
    assert "kubeconfig: yet/to/come does not exist" in up.stderr
