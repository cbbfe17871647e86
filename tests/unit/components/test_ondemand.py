"""Tests of nodes on demand: Slurm's configuration, the template of their pods, and the rights of
their agent."""

import copy
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cel_expr_python import cel

from agents import labels
from agents.ondemand.carry import pod
from agents.ondemand.observed import Template
from components import conventions as c
from components.settings import SettingsError
from components.slurm.ondemandpolicy import (
    IS_OTHER,
    LABELS,
    POD,
    TEMPLATE,
    like_templates,
    own_pods,
)
from components.slurmconf import config_files, cost_on_demand, wanted_nodes, wanted_on_demand
from tests.support.graph import Graph, container, record, templates
from tests.support.stack import config, settings

Object = dict[str, Any]
GPU = {
    "name": "gpu",
    "replicas": 8,
    "cpus": 4,
    "memory": "16GiB",
    "on_demand": {"min": 1, "start": 600, "price": 2.5},
}


def elastic(values: Object) -> None:
    values["nodesets"] = [*values["nodesets"], GPU]


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(elastic))


# --- Slurm's configuration -----------------------------------------------------------------------


def test_slurm_starts_all_nodes_of_a_job_at_once() -> None:
    conf = config_files(settings(elastic))["slurm.conf"].splitlines()

    expected = {
        "SuspendProgram=/usr/lib/slurmstack/power",
        "ResumeProgram=/usr/lib/slurmstack/power",
        "ResumeFailProgram=/usr/lib/slurmstack/power",
        "SuspendRate=0",
        "ResumeRate=0",
        "ResumeTimeout=720",
        "SuspendExcStates=DYNAMIC_NORM",
        "PrivateData=cloud",
    }
    assert expected <= set(conf)
    (line,) = [one for one in conf if one.startswith("NodeName=gpu-")]
    assert line.startswith("NodeName=gpu-[0-7] ")
    assert "State=CLOUD" in line
    assert "Feature=gpu,on-demand" in line


def test_stack_without_nodes_on_demand_has_no_power_saving() -> None:
    conf = config_files(settings())["slurm.conf"]
    assert "Suspend" not in conf
    assert "Resume" not in conf
    assert "PrivateData" not in conf


def test_slurmctld_does_not_set_absent_nodes_on_demand_to_down() -> None:
    assert c.ABSENT_PROGRAM not in config_files(settings(elastic))["slurm.conf"]


def test_agent_gets_schedules_in_minutes_and_day_numbers() -> None:
    hours = {"days": ["mon", "sun"], "begin": "07:30", "end": "18:00", "min": 4}
    chosen = {**GPU, "on_demand": {"schedule": [hours], "keep": ["gpu-3"]}}
    wanted = wanted_on_demand(settings(lambda values: values.update(nodesets=[chosen])))

    (nodeset,) = json.loads(wanted)["nodesets"].values()
    assert nodeset["schedule"] == [{"days": [0, 6], "begin": 450, "end": 1080, "min": 4}]
    assert (nodeset["max"], nodeset["min"], nodeset["idle"]) == (8, 0, 600)
    assert nodeset["keep"] == ["gpu-3"]


def test_nodes_on_demand_cannot_keep_their_machines() -> None:
    kept = {**GPU, "keep_machine": True}

    with pytest.raises(SettingsError, match="keep_machine: true: nodes on demand have no machine"):
        settings(lambda values: values.update(nodesets=[kept]))


def test_reconciler_knows_which_nodesets_are_on_demand() -> None:
    found = json.loads(wanted_nodes(settings(elastic)))["nodesets"]
    assert {name: one["on_demand"] for name, one in found.items()}["gpu"]
    assert sum(one["on_demand"] for one in found.values()) == 1


# --- Costs ---------------------------------------------------------------------------------------


def priced(
    price: float | None, name: str = "gpu", replicas: int = 32, **on_demand: Any
) -> dict[str, Any]:
    given = {} if price is None else {"price": price}
    return {**GPU, "name": name, "replicas": replicas, "on_demand": {**given, **on_demand}}


HOURS = {"begin": "07:00", "end": "18:00", "min": 4}


@pytest.mark.parametrize(
    ("nodesets", "ceiling", "highest", "lowest"),
    [
        (
            [priced(24.5, min=1)],
            400,
            "400 an hour (ceiling; all 32 nodes of gpu together would cost 784)",
            "24.5 (1 node always awake)",
        ),
        (
            [priced(24.5, min=1)],
            784,
            "784 an hour (all 32 nodes of gpu)",
            "24.5 (1 node always awake)",
        ),
        (
            [priced(24.5, min=1, schedule=[HOURS])],
            None,
            "784 an hour (all 32 nodes of gpu)",
            "24.5 (1 node always awake), in scheduled hours up to 98 (4 nodes)",
        ),
        (
            [priced(1, replicas=3), priced(0.005, "huge", 2, min=2), priced(None, "old")],
            None,
            "3.01 an hour (all 5 nodes of gpu, huge)",
            "0.01 (2 nodes always awake); not counted, because no price is set: old",
        ),
        (
            [priced(0, replicas=1)],
            None,
            "0 an hour (1 node of gpu)",
            "0 (0 nodes always awake)",
        ),
    ],
)
def test_costs_of_nodes_on_demand_have_maximum_and_minimum(
    nodesets: list[dict[str, Any]], ceiling: float | None, highest: str, lowest: str
) -> None:
    def edit(values: Object) -> None:
        values["nodesets"] = [*values["nodesets"], *nodesets]
        values["on_demand"] = {} if ceiling is None else {"ceiling": ceiling}

    assert cost_on_demand(settings(edit)) == f"at most {highest}, at least {lowest}"


def test_nodes_without_a_price_have_no_costs() -> None:
    sleeping = priced(None)
    assert cost_on_demand(settings()) == ""
    assert cost_on_demand(settings(lambda values: values.update(nodesets=[sleeping]))) == ""


def test_only_a_preview_logs_the_costs(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    cost = cost_on_demand(settings(elastic))
    metadata = graph.one("ondemand-nodesets").inputs["metadata"]
    assert metadata["annotations"] == {c.ANNOTATION_COST: cost}
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.info", said.append)
    for is_preview in (False, True):
        monkeypatch.setattr("pulumi.runtime.is_dry_run", lambda is_preview=is_preview: is_preview)
        record(monkeypatch, config(elastic), anew=True)
    assert said == [f"{c.COST_LOGGED}{cost}"]


# --- Pods ----------------------------------------------------------------------------------------


def test_nodeset_on_demand_is_a_template_instead_of_a_statefulset(graph: Graph) -> None:
    made = graph.one("nodeset-gpu-template")
    assert made.type == "kubernetes:core/v1:PodTemplate"
    assert made.inputs["metadata"]["labels"][c.LABEL_NODESET] == "gpu"

    template = templates(graph)["nodeset-gpu-template"]
    assert template["metadata"]["labels"].items() >= c.ON_DEMAND_LABELS.items()
    assert template["spec"]["subdomain"] == c.HOSTS
    assert {"name": "ON_DEMAND", "value": "yes"} in container(graph, "nodeset-gpu-template")["env"]


def test_nodes_on_demand_do_not_change_other_nodesets(
    monkeypatch: pytest.MonkeyPatch, graph: Graph
) -> None:
    before = record(monkeypatch, config())
    assert templates(graph)["nodeset-cpu-slurmd"] == templates(before)["nodeset-cpu-slurmd"]


def test_one_agent_runs_at_a_time(graph: Graph) -> None:
    deployment = graph.one("ondemand-agent").inputs["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


def test_agent_may_create_and_delete_pods_and_nothing_else(graph: Graph) -> None:
    rules = graph.one("ondemand-role").inputs["rules"]
    granted = {
        (name, verb) for rule in rules for name in rule["resources"] for verb in rule["verbs"]
    }
    pods = {("pods", verb) for verb in ("create", "delete", "list")}
    assert granted == {*pods, ("podtemplates", "list")}


# --- The admission policy ------------------------------------------------------------------------


def test_stack_without_nodes_on_demand_keeps_the_policy_for_pod_templates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the stack deleted this policy, the API server would stop reading PodTemplates. It would
    then miss templates of nodes on demand that a later edit adds."""
    made = record(monkeypatch, config())
    named = {one.name for one in made.resources if one.name.startswith("ondemand-")}
    assert named == {"ondemand-templates", "ondemand-templates-binding"}
    binding = made.one("ondemand-templates-binding").inputs["spec"]
    assert binding["paramRef"]["selector"] == {"matchLabels": c.ON_DEMAND_LABELS}


_TYPES = dict.fromkeys(("object", "oldObject", "params", "request", "variables"), cel.Type.DYN)


@functools.cache
def compiled(expression: str) -> cel.Expression:
    return cel.NewEnv(variables=_TYPES).compile(expression)


def refusals(
    template: Object,
    operation: str,
    given: Object,
    nodesets: Sequence[str] = ("gpu",),
    template_labels: Object | None = None,
) -> list[str]:
    """Evaluate the policies as Kubernetes does, and return the reasons why they refuse a request.

    `template_labels` are the labels of the PodTemplate, by default those of the template's pods.
    """
    request = {"operation": operation}
    rules = list(own_pods(nodesets))
    if operation == "CREATE" and given["metadata"]["labels"].items() >= c.ON_DEMAND_LABELS.items():
        rules += like_templates()  # the policy selects new pods with these labels
    new, old = (given, None) if operation == "CREATE" else (None, given)
    found = template["metadata"]["labels"] if template_labels is None else template_labels
    params = {"metadata": {"name": "gpu", "uid": "uid", "labels": found}, "template": template}
    bindings: Object = {
        "object": new,
        "oldObject": old,
        "request": request,
        "params": params,
        "variables": {},
    }
    for name, expression in (POD, LABELS, IS_OTHER, TEMPLATE):
        bindings["variables"][name] = compiled(expression).eval(data=bindings).plain_value()
    return [
        message
        for expression, message in rules
        if compiled(expression).eval(data=bindings).value() is not True
    ]


@pytest.fixture(scope="module")
def template(graph: Graph) -> Object:
    return templates(graph)["nodeset-gpu-template"]


def own_pod(template: Object) -> Object:
    return copy.deepcopy(pod("gpu-3", Template("gpu", "uid", template, "digest")))


def test_agent_may_create_and_delete_the_pods_of_its_templates(template: Object) -> None:
    assert refusals(template, "CREATE", own_pod(template)) == []
    assert refusals(template, "DELETE", own_pod(template)) == []


Edit = Callable[[Object], object]


def first(made: Object) -> Object:
    found: Object = made["spec"]["containers"][0]
    return found


def join(made: Object) -> Object:
    found: Object = made["spec"]["initContainers"][-1]
    return found


def spec(**fields: Any) -> Edit:
    return lambda made: made["spec"].update(fields)


def meta(**fields: Any) -> Edit:
    return lambda made: made["metadata"].update(fields)


def owner(**fields: Any) -> Edit:
    return lambda made: made["metadata"]["ownerReferences"][0].update(fields)


KARPENTER = "karpenter.sh/do-not-disrupt"
INGRESS = "kubernetes.io/ingress-bandwidth"
NOT_READY = "node.kubernetes.io/not-ready"


def volume(**source: Any) -> Edit:
    return lambda made: made["spec"]["volumes"].append({"name": "x", **source})


def toleration(**fields: Any) -> Edit:
    return lambda made: made["spec"].setdefault("tolerations", []).append(fields)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda made: made["metadata"]["labels"].pop(labels.ON_DEMAND), "only pods of nodes"),
        (lambda made: made["metadata"]["labels"].update({c.LABEL_COMPONENT: "login"}), "only pods"),
        (lambda made: made["metadata"]["labels"].update({c.LABEL_NODESET: "x"}), "a nodeset"),
        (lambda made: made["metadata"]["labels"].update(app="another"), "labels"),
        (lambda made: made["metadata"]["labels"].update({labels.POD: "cpu-0"}), "labels"),
        (lambda made: made["metadata"]["labels"].pop(labels.NAME), "labels"),
        (lambda made: made["metadata"]["annotations"].update(network="host"), "annotations"),
        (lambda made: made["spec"].pop("automountServiceAccountToken"), "automount"),
        (spec(hostPID=True), "hostPID"),
        (spec(hostNetwork=True), "hostNetwork"),
        (spec(hostUsers=False), "hostUsers"),
        (spec(nodeName="node-0"), "nodeName"),
        (spec(nodeSelector={"pool": "control-plane"}), "nodeSelector"),
        (spec(serviceAccountName="reconciler"), "serviceAccountName"),
        (spec(priorityClassName="system-node-critical"), "priorityClassName"),
        (spec(securityContext={"sysctls": [{"name": "x", "value": "1"}]}), "securityContext"),
        (toleration(key="node-role.kubernetes.io/control-plane", operator="Exists"), "tolerations"),
        (toleration(operator="Exists"), "tolerations"),
        (volume(secret={"secretName": "jwt"}), "volumes"),
        (volume(persistentVolumeClaim={"claimName": "database"}), "volumes"),
        (volume(hostPath={"path": "/"}), "volumes"),
        (volume(nfs={"server": "10.0.0.1", "path": "/"}), "volumes"),
        (lambda made: first(made).update(image="evil"), "containers"),
        (lambda made: first(made).update(command=["sh"]), "containers"),
        (lambda made: first(made).update(envFrom=[{"secretRef": {"name": "jwt"}}]), "containers"),
        (lambda made: first(made)["securityContext"].update(privileged=True), "containers"),
        (lambda made: first(made).pop("securityContext"), "containers"),
        (lambda made: first(made)["resources"]["limits"].update({"x.org/y": "1"}), "containers"),
        (lambda made: made["spec"]["containers"].append({"name": "x", "image": "y"}), "containers"),
        (lambda made: made["spec"].pop("initContainers"), "initContainers"),
        (lambda made: made["spec"]["initContainers"].reverse(), "initContainers"),
        (meta(name="cpu-0"), "pod's name"),
        (meta(name="gpu-3-x"), "pod's name"),
        (meta(name="not-gpu-3"), "pod's name"),
        (meta(finalizers=["example.org/stay"]), "finalizers"),
        (lambda made: made["metadata"].pop("ownerReferences"), "ownerReferences"),
        (owner(kind="StatefulSet", name="cpu"), "ownerReferences"),
        (owner(uid="another"), "ownerReferences"),
        (owner(blockOwnerDeletion=True), "ownerReferences"),
        (lambda made: made["metadata"]["ownerReferences"].append({}), "ownerReferences"),
        (lambda made: made["metadata"]["annotations"].pop(KARPENTER), "annotations"),
        (lambda made: made["metadata"]["annotations"].update({INGRESS: "1k"}), "annotations"),
        (
            lambda made: made["metadata"]["labels"].update({"apps.kubernetes.io/pod-index": "0"}),
            "labels",
        ),
        (spec(hostname="controller-0"), "hostname"),
        (spec(subdomain="another"), "subdomain"),
        (spec(readinessGates=[{"conditionType": "example.org/x"}]), "readinessGates"),
        (spec(resources={"limits": {"cpu": "64"}}), "resources"),
        (spec(runtimeClassName="privileged"), "runtimeClassName"),
        (spec(schedulerName="another"), "schedulerName"),
        (spec(hostAliases=[{"ip": "192.0.2.1", "hostnames": ["controller"]}]), "hostAliases"),
        (spec(ephemeralContainers=[{"name": "x", "image": "y"}]), "ephemeralContainers"),
        (spec(enableServiceLinks=True), "all other fields"),
        (spec(setHostnameAsFQDN=True), "all other fields"),
        (spec(fieldOfTheFuture="x"), "all other fields"),
        (lambda made: made["spec"].pop("enableServiceLinks"), "all other fields"),
        (toleration(key=NOT_READY, operator="Exists"), "tolerations"),
        (lambda made: first(made).update(terminationMessagePath="/etc/x"), "containers"),
        (lambda made: first(made).pop("terminationMessagePath"), "containers"),
        (lambda made: first(made).update(imagePullPolicy="Never"), "containers"),
        (lambda made: first(made).update(fieldOfTheFuture="x"), "containers"),
        (lambda made: first(made)["resources"].update(claims=[{"name": "x"}]), "containers"),
        (lambda made: first(made)["resources"]["requests"].update(cpu="1m"), "containers"),
        (lambda made: first(made)["resources"].pop("requests"), "containers"),
    ],
)
def test_policy_refuses_pods_that_differ_from_their_template(
    template: Object, edit: Edit, reason: str
) -> None:
    made = own_pod(template)
    edit(made)
    assert any(reason in message for message in refusals(template, "CREATE", made))


@pytest.mark.parametrize(
    "edit",
    [
        # Kubernetes itself makes this change to new pods.
        spec(serviceAccountName="default", serviceAccount="default"),
        spec(priorityClassName="usual", priority=5, preemptionPolicy="Never"),
        spec(overhead={"cpu": "100m"}, imagePullSecrets=[{"name": "of-the-account"}]),
        toleration(key=NOT_READY, operator="Exists", effect="NoExecute", tolerationSeconds=300),
        lambda made: first(made).update(imagePullPolicy="Always"),
        lambda made: first(made).update(resizePolicy=[{"resourceName": "cpu"}]),
        lambda made: join(made).update(resources={"requests": {"cpu": "10m"}}),
        lambda made: made["metadata"]["annotations"].update({"kubernetes.io/psp": "eks"}),
        # A pod of another nodeset is compared only with the template of that nodeset.
        lambda made: made["metadata"]["labels"].update({c.LABEL_NODESET: "cpu"}),
    ],
)
def test_policy_accepts_changes_that_kubernetes_itself_makes(template: Object, edit: Edit) -> None:
    made = own_pod(template)
    edit(made)
    assert refusals(template, "CREATE", made, nodesets=("gpu", "cpu")) == []


@pytest.mark.parametrize("index", range(2))
def test_policy_compares_all_containers_of_a_pod(template: Object, index: int) -> None:
    for name in ("initContainers", "containers"):
        made = own_pod(template)
        made["spec"][name][-index]["tty"] = True
        assert any(name in message for message in refusals(template, "CREATE", made))


def test_pod_may_use_only_pull_secrets_of_its_template(template: Object) -> None:
    given = copy.deepcopy(template)
    given["spec"]["imagePullSecrets"] = [{"name": "ours"}]
    made = own_pod(given)
    assert refusals(given, "CREATE", made) == []

    made["spec"]["imagePullSecrets"] = [{"name": "another"}]
    assert refusals(given, "CREATE", made) == [
        "imagePullSecrets must be the same as in the PodTemplate of the nodeset"
    ]


@pytest.mark.parametrize("found", [{}, {c.LABEL_NODESET: "another"}])
def test_template_without_labels_still_limits_pods_of_its_nodeset(
    template: Object, found: Object
) -> None:
    made = own_pod(template)
    assert refusals(template, "CREATE", made, template_labels=found) == []

    first(made)["securityContext"]["privileged"] = True
    assert refusals(template, "CREATE", made, template_labels=found)


def test_pod_is_refused_if_its_template_is_missing(graph: Graph) -> None:
    binding = graph.one("ondemand-templates-gpu-binding").inputs
    assert binding["metadata"]["name"] == "slurm-ondemand-templates-gpu"
    assert binding["spec"] == {
        "policyName": graph.one("ondemand-templates").inputs["metadata"]["name"],
        "validationActions": ["Deny"],
        "matchResources": {"objectSelector": {"matchLabels": {c.LABEL_NODESET: "gpu"}}},
        "paramRef": {"namespace": "slurm", "name": "gpu", "parameterNotFoundAction": "Deny"},
    }
    template = graph.one("nodeset-gpu-template").inputs["metadata"]
    assert (template["namespace"], template["name"]) == ("slurm", "gpu")


def test_agent_may_create_pods_only_while_policies_limit_them(graph: Graph) -> None:
    """Pulumi creates a resource after its dependencies, and deletes it before them. So the agent's
    rights must depend on the policies, directly or through other resources."""
    permanent = graph.one("ondemand-templates-binding").urn
    required = graph.one("ondemand-templates-gpu-binding")
    assert permanent in required.dependencies
    for name in ("ondemand-limits", "ondemand-limits-binding"):
        assert required.urn in graph.one(name).dependencies
    assert graph.one("ondemand-limits-binding").urn in graph.one("ondemand-rights").dependencies


def test_missing_templates_affect_only_new_pods_of_nodes_on_demand(graph: Graph) -> None:
    """If no template exists, the API server refuses all requests that match the policy, even
    requests of Kubernetes itself. So the policy must match only new pods of nodes on demand."""
    needs_templates = [
        made.inputs["spec"]
        for made in graph.of_type(
            "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
        )
        if "paramKind" in made.inputs["spec"]
    ]

    (spec,) = needs_templates
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE"]
    assert spec["matchConstraints"]["objectSelector"] == {"matchLabels": c.ON_DEMAND_LABELS}


def test_agent_cannot_delete_pods_of_other_nodes(template: Object) -> None:
    made = own_pod(template)
    del made["metadata"]["labels"][labels.ON_DEMAND]
    assert refusals(template, "DELETE", made)
