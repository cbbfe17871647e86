"""The templates of `package/templates` and the examples in docs/package.md."""

import json
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from google.protobuf import struct_pb2
from pulumi.runtime.proto import resource_pb2

import package
from components.conventions import PROJECT
from local.paths import ROOT
from package.cluster import TYPE, output_types
from tests.support.graph import Graph, Recorder, opened, record, record_program
from tests.support.stack import KEY, config

TEMPLATES = ROOT / "package/templates"
GIVEN = {"registry": "registry.lab", "ssh_key": KEY}
"""Answers to the questions of a template."""
EXPORTED = {"login_address", "login_host_key", "report"}
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/package.md").read_text(), re.DOTALL)


Run = Callable[[Callable[[], None]], Graph]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a program and records its resources.

    The program can import the package, and finds the answers (GIVEN) in its configuration.
    """
    monkeypatch.setitem(sys.modules, PROJECT, package)
    answers = {f"{PROJECT}:{key}": value for key, value in GIVEN.items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(answers))
    return record_program


def filled(text: str, pattern: str) -> Any:
    """Replace each question, a match of `pattern`, with its answer, and parse the YAML."""
    return yaml.safe_load(re.sub(pattern, lambda found: f'"{GIVEN[found[1]]}"', text))


def yaml_program() -> Mapping[str, Any]:
    text = (TEMPLATES / "yaml/Pulumi.yaml").read_text()
    found: Mapping[str, Any] = filled(text, r'"?\$\{(registry|ssh_key)\}"?')
    return found


def python_program() -> None:
    runpy.run_path(str(TEMPLATES / "python/__main__.py"))


def test_template_in_python_makes_a_cluster(run: Run) -> None:
    graph = run(python_program)

    assert graph.one("lab-nodeset-cpu-slurmd").inputs["spec"]["replicas"] == 2
    assert graph.one("lab-users-keys").inputs["data"] == {"ada": f"{KEY}\n"}
    assert graph.outputs.keys() == EXPORTED


def test_template_in_yaml_makes_the_same_cluster(run: Run) -> None:
    program = yaml_program()
    lab = program["resources"]["lab"]

    def make() -> None:
        package.SlurmCluster("lab", lab["properties"])

    assert lab["type"] == TYPE.replace(":index:", ":")
    same(run(make), run(python_program))
    assert program["outputs"] == {name: f"${{lab.{name}}}" for name in EXPORTED}


def same(one: Graph, other: Graph) -> None:
    """Assert that two programs create the same resources."""
    first, second = (
        {each.urn: opened(each.inputs) for each in graph.resources} for graph in (one, other)
    )
    assert first == second


def test_template_in_typescript_has_the_settings_of_the_other_templates() -> None:
    text = (TEMPLATES / "typescript/index.ts").read_text()
    literal = text.partition('SlurmCluster("lab", ')[2].partition(");\n")[0]

    # An object literal without expressions is also a mapping in YAML.
    settings = filled(literal, r'config\.require\("(registry|ssh_key)"\)')

    assert settings == yaml_program()["resources"]["lab"]["properties"]
    exported = re.findall(r"^export const (\w+) = lab\.(\w+);$", text, re.MULTILINE)
    assert exported == [(name, name) for name in sorted(EXPORTED)]


def test_templates_ask_only_for_the_registry_and_the_ssh_key() -> None:
    files = sorted(TEMPLATES.glob("*/Pulumi.yaml"))

    assert [file.parent.name for file in files] == ["python", "typescript", "yaml"]
    for file in files:
        assert yaml.safe_load(file.read_text())["template"]["config"].keys() == GIVEN.keys(), file
    assert output_types().keys() >= EXPORTED


def test_other_programs_read_the_outputs_through_a_stack_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = record(monkeypatch, config()).outputs
    (example,) = (text for text in EXAMPLES if "StackReference" in text)

    def read(_recorder: Recorder, request: Any) -> resource_pb2.ReadResourceResponse:
        assert (request.type, request.id) == (
            "pulumi:pulumi:StackReference",
            "organization/slurmstack/gpu",
        )
        found = struct_pb2.Struct()
        secret = [name for name, value in outputs.items() if opened(value) != value]
        found.update({"name": request.id, "outputs": opened(outputs), "secretOutputNames": secret})
        return resource_pb2.ReadResourceResponse(urn="urn:gpu", properties=found)

    monkeypatch.setattr(Recorder, "ReadResource", read)
    graph = record_program(lambda: exec(example, {}))  # noqa: S102  # our own documentation

    (provider,) = graph.of_type("pulumi:providers:kubernetes")
    assert opened(provider.inputs["kubeconfig"]) == opened(outputs["kubeconfig"])
    assert provider.inputs["kubeconfig"] != opened(outputs["kubeconfig"]), (
        "the kubeconfig must stay secret"
    )
    assert graph.one("links").inputs["data"] == {"rest": outputs["rest_url"]}
    assert graph.one("links").inputs["metadata"]["namespace"] == outputs["namespace"]
    assert graph.outputs == {"nodes": {"cpu": 2, "big": 1}}
