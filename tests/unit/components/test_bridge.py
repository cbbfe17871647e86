"""Tests of the bridge: Slurm's configuration, the nodes that pods share, the rights of the bridge,
and the policies that protect its pods."""

import copy
import functools
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from cel_expr_python import cel

from agents import labels
from agents.bridge import proof
from agents.bridge.wanted import Wanted
from components import conventions as c
from components.slurm import bridgepolicy
from components.slurmconf import bridge_rules, config_files, wanted_bridge
from tests.support.graph import Graph, container, record, templates
from tests.support.stack import config, settings

Object = dict[str, Any]
BRIDGE: Object = {
    "scheduler": "slurm-bridge",
    "users": [
        {"namespace": "lab", "user": "ada", "accounts": ["physics", "chemistry"]},
        {"namespace": "lab", "service_account": "trainer", "user": "bob"},
        {"namespace": "web", "service_account": "server", "user": "bob"},
    ],
}


def bridged(values: Object) -> None:
    values["users"] = [{"name": "ada", "uid": 2001}, {"name": "bob", "uid": 2002}]
    values["nodesets"][0].update(shared_with_pods=True)
    values["nodesets"][0].pop("cpu_request", None)
    values["bridge"] = BRIDGE


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(bridged))


# --- Slurm's configuration -----------------------------------------------------------------------


def test_bridge_reads_its_settings() -> None:
    wanted = Wanted.model_validate_json(wanted_bridge(settings(bridged)))

    assert (wanted.scheduler, wanted.partition, wanted.feature) == ("slurm-bridge", None, "pods")
    first, second = list(wanted.rules_for("lab", "trainer"))
    assert (first.user, first.uid, first.gid, first.accounts) == (
        *("ada", 2001, 2001),
        ("physics", "chemistry"),
    )
    assert second.user == "bob"
    assert list(wanted.rules_for("web", "default")) == []


def test_prolog_and_epilog_of_the_bridge_run_before_those_of_the_site() -> None:
    def edit(values: Object) -> None:
        bridged(values)
        values["slurm"] = {"prolog": {"text": "#!/bin/sh\n"}, "epilog": {"text": "#!/bin/sh\n"}}

    files = config_files(settings(edit))
    lines = files["slurm.conf"].splitlines()

    assert {"bridge_prolog", "bridge_epilog"} <= files.keys()
    for ours, theirs in (("bridge_prolog", "prolog"), ("bridge_epilog", "epilog")):
        key = theirs.capitalize()
        assert lines.index(f"{key}={ours}") < lines.index(f"{key}={theirs}")
    assert " bridge.slurm.svc.cluster.local. 9350\n" in files["bridge_epilog"]


def test_epilog_fails_if_it_cannot_wait_for_the_pods(tmp_path: Path) -> None:
    """Slurm drains the node then. If the epilog succeeded, other jobs would use the resources."""
    programs = tmp_path / "programs"
    (programs / "agents/bridge").mkdir(parents=True)
    (programs / "agents/bridge/wait.py").touch()
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    script = config_files(settings(bridged))["bridge_epilog"].replace(c.PROGRAMS, str(programs))

    def code(**environment: str) -> int:
        given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", **environment}
        return subprocess.run(["sh", "-c", script], env=given, check=False).returncode

    assert code(SPANK_SLURMSTACK_PODS="1") != 0
    assert code() == 0


def test_stack_without_bridge_has_no_trace_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = config_files(settings())
    assert not [name for name in files if "bridge" in name]
    assert "bridge" not in files["slurm.conf"]

    made = record(monkeypatch, config())
    assert not [one.name for one in made.resources if "bridge" in one.name]


# --- Nodes that pods share -----------------------------------------------------------------------


def test_worker_that_pods_share_reserves_little_and_may_use_its_whole_size(graph: Graph) -> None:
    found = container(graph, "nodeset-cpu-slurmd")["resources"]
    assert found["requests"]["cpu"] == "100m"
    assert found["limits"]["cpu"] == str(settings(bridged).nodesets[0].cpus)
    assert found["limits"]["memory"] == f"{settings(bridged).nodesets[0].memory}Mi"


def test_workers_that_pods_share_run_on_different_machines(graph: Graph) -> None:
    template = templates(graph)["nodeset-cpu-slurmd"]
    (apart,) = template["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["topologyKey"] == labels.HOSTNAME
    assert template["metadata"]["labels"].items() >= apart["labelSelector"]["matchLabels"].items()
    assert {"key": labels.BRIDGE, "operator": "Exists"} in template["spec"]["tolerations"]
    # A StatefulSet cannot change its selector, but a nodeset may begin or cease to share.
    selector = graph.one("nodeset-cpu-slurmd").inputs["spec"]["selector"]["matchLabels"]
    assert not apart["labelSelector"]["matchLabels"].keys() & selector.keys()


def test_only_the_bridge_and_its_nodes_have_the_key(graph: Graph) -> None:
    having = {
        maker
        for maker, template in templates(graph).items()
        for one in template["spec"]["containers"]
        if c.BRIDGE_KEY_DIR in {mount["mountPath"] for mount in one.get("volumeMounts", ())}
    }
    assert having == {"bridge-agent", "nodeset-cpu-slurmd"}
    assert proof.KEY == c.BRIDGE_KEY


# --- Nodes that run only pods ---------------------------------------------------------------------


def only_for_pods(values: Object) -> None:
    bridged(values)
    gpus = {"type": "h100", "count": 8}
    only = {**values["nodesets"][0], "name": "gpus", "gpus": gpus, "pods_only": True}
    del only["shared_with_pods"]
    values["nodesets"].append(only)


def test_only_the_bridge_submits_jobs_to_nodes_that_run_only_pods() -> None:
    lines = config_files(settings(only_for_pods))["slurm.conf"].splitlines()
    (main,) = [line for line in lines if line.startswith("PartitionName=main ")]
    (pods,) = [line for line in lines if line.startswith("PartitionName=pods ")]

    assert "gpus" not in dict(word.split("=", 1) for word in main.split())["Nodes"].split(",")
    words = dict(word.split("=", 1) for word in pods.split())
    assert (words["Nodes"], words["Default"]) == ("cpu,gpus", "NO")
    assert "JobSubmitPlugins=lua" in lines


def test_pods_use_one_partition_with_all_nodes_that_run_pods() -> None:
    """Slurm gives a wrong reason for a waiting job that can never run in one of its partitions."""

    def partition(edit: Callable[[Object], None]) -> str | None:
        return Wanted.model_validate_json(wanted_bridge(settings(edit))).partition

    def chosen(values: Object) -> None:
        only_for_pods(values)
        values["bridge"] = {**BRIDGE, "partition": "main"}

    assert partition(only_for_pods) == "pods"
    assert partition(chosen) == "main"


def test_node_that_runs_only_pods_leaves_the_gpus_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = record(monkeypatch, config(only_for_pods))
    found = container(made, "nodeset-gpus-slurmd")

    assert not [name for name in found["resources"]["limits"] if "gpu" in name]
    assert found["resources"]["requests"]["cpu"] == "100m"
    conf = {one["name"]: one.get("value") for one in found["env"]}["NODE_CONF"]
    assert "Gres=gpu:h100:8" in str(conf)


# --- Rights --------------------------------------------------------------------------------------


def test_bridge_changes_pods_only_in_the_namespaces_of_the_settings(graph: Graph) -> None:
    writes = {"create", "delete", "patch", "update"}
    everywhere = graph.one("bridge-cluster-role").inputs["rules"]
    assert not writes & {verb for rule in everywhere for verb in rule["verbs"]}

    roles = [
        one for one in graph.resources if one.name.startswith("bridge-") and "role" in one.name
    ]
    assert {one.inputs["metadata"].get("namespace") for one in roles} == {
        *(None, "slurm", "lab", "web")
    }


def test_bridge_has_rights_only_while_policies_limit_them(graph: Graph) -> None:
    for granted in ("bridge-rights", "bridge-cluster-rights", "bridge-lab-rights"):
        for policy in ("bridge-limits-binding", "bridge-pods-binding"):
            assert graph.one(policy).urn in graph.one(granted).dependencies


# --- The admission policies ----------------------------------------------------------------------

RULES = bridge_rules(settings(bridged))
_TYPES = dict.fromkeys(("object", "oldObject", "request", "variables"), cel.Type.DYN)


@functools.cache
def compiled(expression: str) -> cel.Expression:
    return cel.NewEnv(variables=_TYPES).compile(expression)


def evaluate(
    new: Object | None,
    old: Object | None,
    request: Object,
    variables: Iterable[tuple[str, str]],
    rules: Iterable[tuple[str, str]],
) -> list[str]:
    bindings: Object = {"object": new, "oldObject": old, "request": request, "variables": {}}
    for name, expression in variables:
        bindings["variables"][name] = compiled(expression).eval(data=bindings).plain_value()
    return [
        message
        for expression, message in rules
        if compiled(expression).eval(data=bindings).value() is not True
    ]


def pod(*, account: str = "default", **metadata: Any) -> Object:
    return {
        "metadata": {"name": "train", "namespace": "lab", **metadata},
        "spec": {"schedulerName": "slurm-bridge", "serviceAccountName": account, "containers": []},
        "status": {},
    }


def refusals(
    new: Object, old: Object | None = None, namespace: str = "lab", subresource: str = ""
) -> list[str]:
    """Return why Kubernetes refuses a request of a user."""
    operation = "UPDATE" if old else "CREATE"
    request = {"operation": operation, "namespace": namespace}
    if subresource:
        # Kubernetes omits an empty field.
        request["subResource"] = subresource
    variables = (*bridgepolicy.VARIABLES, *bridgepolicy.users(RULES))
    return evaluate(new, old, request, variables, bridgepolicy.of_pods())


def is_concerned(new: Object | None, old: Object | None = None) -> bool:
    rule = (bridgepolicy.concerns("slurm-bridge", "slurm"), "concerns")
    return not evaluate(new, old, {}, (), [rule])


def test_policy_concerns_only_pods_of_this_bridge() -> None:
    other = pod()
    other["spec"]["schedulerName"] = "default-scheduler"
    assert is_concerned(pod())
    assert not is_concerned(other)

    linked = pod(labels={labels.BRIDGE: "slurm"})
    linked["spec"]["schedulerName"] = "an-older-name"
    assert is_concerned(linked)
    assert is_concerned(other, linked)
    linked["metadata"]["labels"] = {labels.BRIDGE: "another-stack"}
    assert not is_concerned(linked)


@pytest.mark.parametrize(
    ("namespace", "account"), [("lab", "default"), ("lab", "trainer"), ("web", "server")]
)
def test_pod_with_a_rule_is_accepted(namespace: str, account: str) -> None:
    assert refusals(pod(account=account), namespace=namespace) == []


@pytest.mark.parametrize(("namespace", "account"), [("other", "default"), ("web", "default")])
def test_pod_without_a_rule_is_refused(namespace: str, account: str) -> None:
    assert any(
        "no rule in bridge.users covers" in one
        for one in refusals(pod(account=account), namespace=namespace)
    )


@pytest.mark.parametrize("prefix", ["slurmjob.slinky.slurm.net/", "slurmstack.dev/"])
@pytest.mark.parametrize(
    ("account", "name", "value", "is_accepted"),
    [
        ("default", "user-id", "ada", True),
        ("default", "user-id", "2001", True),
        ("default", "user-id", "root", False),
        ("default", "user-id", "0", False),
        ("default", "user-id", "*", False),
        ("default", "user-id", "bob", False),
        ("trainer", "user-id", "bob", True),
        ("default", "account", "chemistry", True),
        ("default", "account", "biology", False),
        # The settings do not limit the accounts of bob.
        ("trainer", "account", "biology", True),
    ],
)
def test_annotation_only_chooses_between_rules(
    prefix: str, account: str, name: str, value: str, is_accepted: bool
) -> None:
    given = pod(account=account, annotations={f"{prefix}{name}": value})

    said = refusals(given)

    assert (said == []) is is_accepted
    if not is_accepted:
        assert f"{prefix}{name}; correct the annotation" in said[0]


def test_pod_keeps_its_annotation_if_its_rule_is_removed() -> None:
    old = pod(annotations={"slurmstack.dev/user-id": "former"})
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = []
    assert refusals(new, old, namespace="former") == []

    new["metadata"]["annotations"]["slurmstack.dev/user-id"] = "root"
    assert refusals(new, old, namespace="former")


Edit = Callable[[Object], object]


@pytest.mark.parametrize(
    "edit",
    [
        lambda made: made["metadata"].update(labels={labels.JOB: "7"}),
        lambda made: made["metadata"].update(labels={labels.BRIDGE: "slurm"}),
        lambda made: made["metadata"].update(finalizers=[labels.BRIDGE]),
    ],
)
def test_only_the_bridge_links_a_pod_to_a_job(edit: Edit) -> None:
    new = pod()
    edit(new)
    assert any("only the bridge may set" in one for one in refusals(new))
    assert any("only the bridge may set" in one for one in refusals(new, pod()))
    assert any("only the bridge may set" in one for one in refusals(pod(), new))


def test_linked_pod_may_change_otherwise() -> None:
    old = pod(labels={labels.JOB: "7", labels.BRIDGE: "slurm"}, finalizers=[labels.BRIDGE, "x"])
    new = copy.deepcopy(old)
    new["metadata"]["labels"]["app"] = "train"
    new["metadata"]["finalizers"] = [labels.BRIDGE]
    assert refusals(new, old) == []

    new["metadata"]["labels"][labels.JOB] = "8"
    assert refusals(new, old)


def test_pod_cannot_choose_its_machine_or_change_its_size() -> None:
    placed = pod()
    placed["spec"]["nodeName"] = "node-0"
    assert any("Slurm chooses the machines" in one for one in refusals(placed))
    assert refusals(placed, placed) == []
    assert any("to resize the pod" in one for one in refusals(pod(), pod(), subresource="resize"))


PVC = "persistentvolumeclaims"


def changed(new: Object, old: Object, operation: str = "UPDATE") -> list[str]:
    """Return why Kubernetes refuses a request of the bridge."""
    request = {
        "operation": operation,
        "namespace": "lab",
        "resource": {"resource": "pods" if "spec" in old and "containers" in old["spec"] else PVC},
    }
    deleted = operation == "DELETE"
    return evaluate(
        None if deleted else new,
        old,
        request,
        bridgepolicy.VARIABLES,
        bridgepolicy.of_bridge("slurm-bridge", "slurm"),
    )


def test_bridge_may_link_release_and_delete_its_pods() -> None:
    old = pod(labels={"app": "x"}, finalizers=["x"], resourceVersion="1")
    new = copy.deepcopy(old)
    new["metadata"]["labels"].update({labels.JOB: "7", labels.BRIDGE: "slurm"})
    new["metadata"]["finalizers"].append(labels.BRIDGE)
    new["metadata"]["resourceVersion"] = "2"
    new["status"] = {"conditions": [{"type": "PodScheduled", "status": "False"}]}

    assert changed(new, old) == []
    assert changed(old, new) == []
    assert changed(old, old, "DELETE") == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda made: made["spec"].update(containers=[{"name": "x", "image": "evil"}]),
        lambda made: made["metadata"].update(labels={"app": "another"}),
        lambda made: made["metadata"].update(annotations={"slurmstack.dev/user-id": "root"}),
        lambda made: made["metadata"].update(finalizers=["example.org/stay"]),
        lambda made: made["metadata"].update(ownerReferences=[{"kind": "Job"}]),
    ],
)
def test_bridge_may_change_nothing_else_of_a_pod(edit: Edit) -> None:
    new = pod()
    edit(new)
    assert changed(new, pod())


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_bridge_may_not_touch_other_pods(operation: str) -> None:
    other = pod()
    other["spec"]["schedulerName"] = "default-scheduler"
    assert changed(other, other, operation)


def claim(**metadata: Any) -> Object:
    return {"metadata": {"name": "data", **metadata}, "spec": {"volumeName": ""}, "status": {}}


def test_bridge_may_choose_the_machine_of_a_volume_and_nothing_else() -> None:
    chosen = {"volume.kubernetes.io/selected-node": "node-1"}
    assert changed(claim(annotations={"x": "y", **chosen}), claim(annotations={"x": "y"})) == []
    assert changed(claim(annotations=chosen), claim()) == []

    assert changed(claim(annotations={"x": "z"}), claim(annotations={"x": "y"}))
    assert changed(claim(labels={"x": "y"}), claim())
    other = claim()
    other["spec"] = {"volumeName": "another"}
    assert changed(other, claim())
    assert changed(claim(), claim(), "DELETE")
