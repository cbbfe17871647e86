"""What the program asks of the engine: parents, providers, protection, secrecy, order."""

import json
from typing import Any

import pulumi
import pytest

from tests.unit.components.graph import SECRET_SIGNATURE, Graph, record
from tests.unit.components.stack import config

COMPONENT = "slurmstack:"
WORKLOADS = ("kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet")


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return record(monkeypatch)


def pod_specs(graph: Graph) -> dict[str, dict[str, Any]]:
    return {
        resource.name: resource.inputs["spec"]["template"]["spec"]
        for resource in graph.resources
        if "template" in resource.inputs.get("spec", {})
    }


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def test_every_component_registers_its_outputs(graph: Graph) -> None:
    components = {r.name for r in graph.resources if r.type.startswith(COMPONENT)}
    registered = {urn.rsplit("::", 1)[1] for urn in graph.outputs_registered}

    assert components <= registered
    assert {"auth", "users", "jail", "controller", "nodeset-cpu", "login"} <= components


def test_everything_is_a_child_of_a_component_but_the_stack_and_its_provider(graph: Graph) -> None:
    at_the_top = {
        resource.type
        for resource in graph.resources
        if "slurmstack:" not in resource.parent.removeprefix("urn:pulumi:test::slurmstack::")
    }

    assert at_the_top <= {
        "pulumi:pulumi:Stack",
        "pulumi:providers:kubernetes",
        "slurmstack:slurm:Slurm",
    }


def test_every_kubernetes_object_goes_through_the_one_explicit_provider(graph: Graph) -> None:
    providers = {
        resource.provider.split("::")[-2]
        for resource in graph.resources
        if resource.type.startswith("kubernetes:")
    }

    assert len(graph.of_type("pulumi:providers:kubernetes")) == 1
    assert providers == {"kubernetes"}


def test_the_munge_key_and_the_host_key_are_secret_wherever_they_go(graph: Graph) -> None:
    key = json.dumps(graph.one("auth-secret").inputs["stringData"])
    host_key = json.dumps(graph.one("login-host-key").inputs["stringData"])

    assert SECRET_SIGNATURE in key
    assert SECRET_SIGNATURE in host_key
    for resource in graph.of_type("kubernetes:core/v1:ConfigMap"):
        assert SECRET_SIGNATURE not in json.dumps(resource.inputs), resource.name
        assert "PRIVATE KEY" not in json.dumps(resource.inputs), resource.name


def test_a_rotation_adds_a_key_and_changes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def rotate(values: dict[str, Any]) -> None:
        values["auth"] = {"rotations": ["2026-12-01T03:00:00Z"]}

    before, after = record(monkeypatch), record(monkeypatch, config(rotate))

    changed = [r.name for r in after.resources if r not in before.resources]
    assert sorted(changed) == ["auth-password-1796094000", "auth-secret"], "no pod rolls"
    names = {r.name for r in after.resources}
    assert {r.name for r in before.resources} <= names, "the key in use stays"


def test_no_secret_comes_from_a_resource_whose_id_would_give_it_away(graph: Graph) -> None:
    assert graph.of_type("random:index/randomBytes:RandomBytes") == []
    assert len(graph.of_type("random:index/randomPassword:RandomPassword")) == 3


def test_no_container_is_privileged_and_all_drop_what_they_are_not_given(graph: Graph) -> None:
    for name, spec in pod_specs(graph).items():
        assert spec["automountServiceAccountToken"] is False, name
        for container in containers(spec):
            context = container["securityContext"]
            assert context["privileged"] is False, (name, container["name"])
            assert context["capabilities"]["drop"] == ["ALL"], (name, container["name"])
            assert "securityContext" in container


def test_daemons_that_need_no_root_run_without_it(graph: Graph) -> None:
    rootless = {
        container["name"]
        for spec in pod_specs(graph).values()
        for container in containers(spec)
        if container["securityContext"]["runAsNonRoot"]
    }

    slurm = {"slurmctld", "reload", "check", "wait", "sackd", "join", "slurmrestd"}
    assert rootless == {"munge", *slurm, "reconciler"}


@pytest.mark.parametrize("protect", [True, False])
def test_data_is_protected_unless_the_stack_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, protect: bool
) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(protect_data=protect)))

    claims = graph.of_type("kubernetes:core/v1:PersistentVolumeClaim")
    assert {claim.name for claim in claims} == {"controller-state", "jail-claim"}
    for resource in (*claims, graph.one("namespace")):
        assert resource.protect == protect, resource.name


def before(graph: Graph, name: str) -> set[str]:
    """Names of all resources that come before one, directly or not."""
    direct = {urn.rsplit("::", 1)[1] for urn in graph.one(name).dependencies}
    return direct.union(*(before(graph, other) for other in direct))


@pytest.mark.parametrize("name", ["nodeset-cpu-slurmd", "login-sshd"])
def test_workers_and_login_come_after_the_controller_and_the_filled_jail(
    graph: Graph, name: str
) -> None:
    needed = {"controller-slurmctld", "controller-service", "jail-populate", "jail-homes"}
    assert needed <= before(graph, name), "the controller's Service must outlive who takes leave"


def test_names_that_users_and_dns_see_are_fixed(graph: Graph) -> None:
    names = {r.inputs["metadata"]["name"] for r in graph.resources if r.type in WORKLOADS}

    assert names == {"controller", "placeholder", "login", "rest", "reconciler", "cpu", "big"}


def test_slurms_hosts_find_each_other_by_bare_names(graph: Graph) -> None:
    hosts = graph.one("hosts")
    assert hosts.inputs["spec"]["clusterIP"] == "None"
    assert hosts.inputs["spec"]["publishNotReadyAddresses"]
    workloads = {
        r.inputs["metadata"]["name"]: r.inputs for r in graph.resources if r.type in WORKLOADS
    }
    # Nobody looks for slurmrestd but by its Service, nor for the others at all.
    for name in workloads.keys() - {"rest", "reconciler", "placeholder"}:
        workload = workloads[name]
        pod = workload["spec"]["template"]
        domain = workload["spec"].get("serviceName", pod["spec"].get("subdomain"))
        assert domain == hosts.inputs["metadata"]["name"]
        assert pod["spec"]["dnsConfig"]["searches"] == ["hosts.slurm.svc.cluster.local"]
        assert hosts.inputs["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_a_worker_may_take_its_drain_grace_to_leave(graph: Graph) -> None:
    spec = pod_specs(graph)["nodeset-cpu-slurmd"]

    assert spec["terminationGracePeriodSeconds"] > 60


def test_registering_twice_gives_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = record(monkeypatch), record(monkeypatch)

    assert sorted(first.resources, key=lambda r: (r.type, r.name)) == sorted(
        second.resources, key=lambda r: (r.type, r.name)
    )


def test_a_placeholder_is_as_large_as_the_controller_and_has_its_images(graph: Graph) -> None:
    def needs(spec: dict[str, Any]) -> list[Any]:
        return [(one["image"], one["resources"]) for one in containers(spec)]

    controller, placeholder = (
        pod_specs(graph)[name] for name in ("controller-slurmctld", "controller-placeholder-pod")
    )

    assert needs(placeholder) == needs(controller)
    assert "volumes" not in placeholder
    assert graph.one("controller-placeholder-priority").inputs["value"] < 0


def test_a_second_controller_needs_no_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(controller={"standby": True})))

    assert not [resource.name for resource in graph.resources if "placeholder" in resource.name]


def test_a_config_edit_leaves_slurmctld_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(values: dict[str, Any]) -> None:
        values["partitions"] = [{"name": "main", "nodesets": ["cpu", "big"], "default": True}]
        values["partitions"] += [{"name": "second", "nodesets": ["cpu"]}]

    before, after = record(monkeypatch), record(monkeypatch, config(edit))

    changed = {
        new.name for old, new in zip(_sorted(before), _sorted(after), strict=True) if old != new
    }
    assert changed == {
        *("config-candidate", "config-check"),
        *("controller-config", "controller-config-in-force"),
    }


def test_no_configuration_comes_into_force_that_was_not_checked(graph: Graph) -> None:
    assert "config-check" in before(graph, "controller-config")


def test_a_resize_changes_only_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = 3

    before, after = record(monkeypatch), record(monkeypatch, config(grow))

    changed = [
        new.name for old, new in zip(_sorted(before), _sorted(after), strict=True) if old != new
    ]
    assert changed == ["nodeset-cpu-slurmd", "reconciler-nodesets"]
    assert after.one("nodeset-cpu-slurmd").inputs["spec"]["replicas"] == 3


def _sorted(graph: Graph) -> list[Any]:
    return sorted(graph.resources, key=lambda resource: (resource.type, resource.name))


def test_settings_that_cannot_work_end_the_program_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_it(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = -1

    with pytest.raises(pulumi.RunError, match="replicas: -1") as caught:
        record(monkeypatch, config(break_it))

    assert "\n" not in str(caught.value)
