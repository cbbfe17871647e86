"""The component `SlurmCluster` in programs of other projects."""

from typing import Any, cast

import pulumi
import pytest

from package import SlurmCluster, SlurmClusterArgs
from package.cluster import TYPE
from tests.support.graph import SECRET_SIGNATURE, Graph, opened, record_program

EVERYTHING: Any = {
    "monitoring": {"kind": "bundled", "bundled": {"grafana": {"enabled": True}}},
    "reconciler": {"ladder": ["reboot"]},
    "jail": {"server": {"machines": ["10.0.0.0/16"]}},
    "accounting": {"enabled": True, "backup": {"enabled": True}},
    "long_checks": {"checks": [{"name": "network"}]},
    "snapshots": {"jail": "fast"},
}
"""Settings of most components."""


def arguments(**changes: Any) -> SlurmClusterArgs:
    given = {
        "cluster_name": "lab",
        "registry": "registry.lab",
        "nodesets": [{"name": "cpu", "replicas": 2, "cpus": 4, "memory": "8GiB"}],
    }
    return cast(SlurmClusterArgs, {**given, **changes})


def names(graph: Graph, kind: str) -> list[tuple[Any, Any]]:
    """Return namespace and name of all objects of a kind."""
    of_kind = (each for each in graph.resources if each.type.endswith(f":{kind}"))
    metadata = (each.inputs["metadata"] for each in of_kind)
    return [(each.get("namespace"), each.get("name")) for each in metadata]


def output(value: Any, *, known: bool = True) -> pulumi.Output[Any]:
    """Return an output of another resource, whose value Pulumi may not know yet."""

    async def later(result: Any) -> Any:
        return result

    return pulumi.Output(set(), later(value), later(known))


def test_one_program_may_have_two_clusters() -> None:
    def program() -> None:
        for name in ("a", "b"):
            SlurmCluster(name, arguments(namespace=name, **EVERYTHING))

    graph = record_program(program)

    urns = [resource.urn for resource in graph.resources]
    assert len(urns) == len(set(urns))
    kinds = ("ClusterRole", "ConfigMap", "Deployment", "Role", "Secret", "StatefulSet")
    for kind in kinds:
        found = names(graph, kind)
        assert len(found) == len(set(found)) > 1, kind
    providers = {each.provider for each in graph.of_type("kubernetes:apps/v1:Deployment")}
    assert len(providers) == 2


def test_settings_may_be_outputs_of_other_resources() -> None:
    def program() -> None:
        nodeset = {"name": "gpu", "replicas": output(3), "cpus": 4, "memory": output("8GiB")}
        make(nodesets=[nodeset])

    graph = record_program(program)

    assert graph.one("lab-nodeset-gpu-slurmd").inputs["spec"]["replicas"] == 3


def make(**changes: Any) -> None:
    SlurmCluster("lab", arguments(**changes))


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings of the program."""
    texts: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: texts.append(text))
    return texts


def test_preview_assumes_values_that_it_does_not_know(warned: list[str]) -> None:
    """Without the resources, a preview would show that it deletes those of an earlier deploy."""
    key = "ssh-ed25519 AAAA"

    def program() -> None:
        unknown = output("", known=False)
        nodeset = {"name": "gpu", "replicas": unknown, "cpus": unknown, "memory": unknown}
        user = {"name": "ada", "uid": 2000, "ssh_keys": [unknown]}
        make(nodesets=[nodeset], users=[user], registry=unknown, kubeconfig="{}")

    graph = record_program(program)

    assert graph.one("lab-nodeset-gpu-slurmd").inputs["spec"]["replicas"] == 1
    (text,) = warned
    assert text.startswith("lab: this preview does not know some values yet, and assumes ")
    assert "nodesets[0].replicas: 1" in text
    assert "nodesets[0].memory: 1GiB" in text
    assert f"users[0].ssh_keys[0]: {key}" in text


def test_outputs_are_unknown_while_a_preview_assumes_values() -> None:
    known: list[Any] = []

    def program() -> None:
        cluster = SlurmCluster("lab", arguments(registry=output("", known=False)))
        cluster.report.apply(known.append)

    record_program(program)

    assert known == []


def test_preview_without_a_value_that_fits_shows_only_the_component(warned: list[str]) -> None:
    graph = record_program(lambda: make(nodesets=output([], known=False)))

    (cluster,) = graph.of_type(TYPE)
    assert [each for each in graph.resources if each.parent == cluster.urn] == []
    assert "does not know nodesets" in warned[-1]
    assert "pulumi up --skip-preview" in warned[-1]


def test_values_of_an_unknown_mapping_of_secrets_are_assumed() -> None:
    def program() -> None:
        make(secrets=output({"pull": {"key": pulumi.UNKNOWN}}, known=False))

    graph = record_program(program)

    assert graph.one("lab-secret-pull").inputs["metadata"]["name"] == "pull"


def test_kubeconfig_and_secrets_may_be_unknown() -> None:
    def program() -> None:
        unknown = output("", known=False)
        make(kubeconfig=unknown, secrets={"pull": {"key": unknown, ".dockerconfigjson": unknown}})

    graph = record_program(program)

    assert graph.of_type("kubernetes:apps/v1:StatefulSet")
    assert graph.one("lab-secret-pull").inputs["metadata"]["name"] == "pull"


def test_missing_context_is_a_warning_only_without_the_argument_kubeconfig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: warned.append(text))

    record_program(lambda: make(kubeconfig="{}"))
    assert warned == []
    record_program(make)
    assert [text.split(": ")[0] for text in warned] == ["slurmstack:cluster.context"]


@pytest.mark.parametrize("whole", [False, True])
def test_values_of_secrets_stay_secret(whole: bool) -> None:
    def program() -> None:
        entries = {"key": pulumi.Output.secret("swordfish")}
        make(secrets=pulumi.Output.from_input({"pull": entries}) if whole else {"pull": entries})

    graph = record_program(program)

    data = graph.one("lab-secret-pull").inputs["stringData"]
    assert opened(data) == {"key": "swordfish"}
    assert SECRET_SIGNATURE in str(data)
    for resource in graph.resources:
        if resource.name != "lab-secret-pull":
            assert "swordfish" not in str(resource.inputs), resource.name


def test_secret_settings_are_refused() -> None:
    with pytest.raises(
        pulumi.RunError, match=r"lab: .* move the secret value to the argument `secrets`"
    ):
        record_program(lambda: make(registry=pulumi.Output.secret("registry.lab")))


@pytest.mark.parametrize("wrap", [lambda value: value, output])
def test_invalid_settings_are_reported_by_key(wrap: Any) -> None:
    with pytest.raises(pulumi.RunError, match=r"^lab: nodesets\[cpu\].replicas: -1: expected"):
        record_program(
            lambda: make(
                nodesets=[{"name": "cpu", "replicas": wrap(-1), "cpus": 4, "memory": "1GiB"}]
            )
        )


def test_outputs_have_the_rest_url_and_the_nodesets() -> None:
    found: dict[str, pulumi.Output[Any]] = {}

    def program() -> None:
        cluster = SlurmCluster("lab", arguments(namespace="lab"))
        found["rest"], found["nodesets"] = cluster.rest_url, cluster.nodesets
        for key, value in found.items():
            pulumi.export(key, value)

    graph = record_program(program)

    assert graph.outputs == {"rest": "http://rest.lab.svc:6820", "nodesets": {"cpu": 2}}
