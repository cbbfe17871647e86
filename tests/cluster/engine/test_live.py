"""The Kubernetes provider on a real cluster: objects, rollouts and their errors."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import CancelledPartway, EngineError, PartialFailure
from engine.providers import Operation
from engine.providers.kubernetes import KubernetesProvider
from engine.providers.kubernetes.manifests import Kind, Ref
from engine.values import Properties, Value
from tests.cluster.engine.stack import Stack

Statuses = tuple[list[str], Callable[[str], None]]


def test_config_map_is_created_updated_and_deleted(stack: Stack) -> None:
    news: Properties = {"metadata": {"namespace": stack.namespace}, "data": {"a": "1", "b": "2"}}
    made = stack.create("core/v1:ConfigMap", "settings", news)
    assert stack.is_unchanged(made, news)
    changed = stack.update(made, {**news, "data": {"a": "3"}})
    assert changed.id == made.id, "the update keeps the generated name"
    live = stack.live(changed)
    assert live is not None
    assert live["data"] == {"a": "3"}, "the update removes the key"
    stack.provider.delete(changed, Operation())
    assert stack.live(changed) is None


def test_string_data_of_a_secret_reaches_the_cluster(stack: Stack) -> None:
    news: Properties = {"metadata": stack.meta("key"), "stringData": {"munge": "hush"}}
    made = stack.create("core/v1:Secret", "key", news)
    assert made.outputs["data"] == {"munge": "aHVzaA=="}
    assert stack.is_unchanged(made, news)
    assert stack.provider.read(made.type, made.urn, str(made.id), made.inputs, made.outputs)


def test_role_and_service_account_are_created(stack: Stack) -> None:
    stack.create("core/v1:ServiceAccount", "agent", {"metadata": stack.meta("agent")})
    rule: Value = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    role: Properties = {"metadata": stack.meta("agent"), "rules": [rule]}
    made = stack.create("rbac.authorization.k8s.io/v1:Role", "role", role)
    binding: Properties = {
        "metadata": stack.meta("agent"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": stack.namespace}],
    }
    stack.create("rbac.authorization.k8s.io/v1:RoleBinding", "binding", binding)
    assert stack.is_unchanged(made, role)


def test_create_and_update_wait_for_the_rollout(stack: Stack, statuses: Statuses) -> None:
    lines, show = statuses
    first = stack.stateful_set("web", stack.pod_spec("sleep 1000"), replicas=2)
    made = stack.create("apps/v1:StatefulSet", "web", first, Operation(status=show))
    assert made.outputs["status"]["readyReplicas"] == 2  # type: ignore[index,call-overload]
    assert any(line.startswith("1 of 2 pods ready") for line in lines)
    assert lines[-1] == "", "the status line is cleared"
    service: Properties = {
        "metadata": stack.meta("web"),
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    stack.create("core/v1:Service", "web", service)
    second = stack.stateful_set("web", stack.pod_spec("sleep 2000"), replicas=2)
    changed = stack.update(made, second)
    status: Any = changed.outputs["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert stack.is_unchanged(changed, second)


def test_missing_image_is_reported_and_can_be_fixed(stack: Stack) -> None:
    missing = stack.pod_spec("sleep 1000", image="slurmstack/missing:1")
    with pytest.raises(PartialFailure) as error:
        stack.create(
            "apps/v1:StatefulSet",
            "mended",
            stack.stateful_set("mended", missing),
            Operation(timeout=8),
        )
    reason = error.value.reason
    assert f"pod {stack.namespace}/mended-0, container main: " in reason
    assert "slurmstack/missing:1" in reason
    assert "\n" not in reason
    broken = stack.made[-1]
    mended = stack.stateful_set("mended", stack.pod_spec("sleep 1000"))
    changed = stack.update(broken, mended, Operation(timeout=60))
    assert changed.outputs["status"]["readyReplicas"] == 1  # type: ignore[index,call-overload]


def test_missing_secret_is_reported(stack: Stack) -> None:
    pod = stack.pod_spec("sleep 1000", envFrom=[{"secretRef": {"name": "missing"}}])
    news: Properties = {"metadata": stack.meta("poor"), "spec": pod}
    with pytest.raises(PartialFailure, match=r'container main: .*secret "missing" not found'):
        stack.create("core/v1:Pod", "poor", news, Operation(timeout=6))


def test_unschedulable_pod_is_reported(stack: Stack) -> None:
    pod = {**stack.pod_spec("sleep 1000"), "nodeSelector": {"no": "way"}}
    news: Properties = {"metadata": stack.meta("lost"), "spec": pod}
    with pytest.raises(PartialFailure, match=r"not ready after 2 s: .*Unschedulable: 0/\d+ nodes"):
        stack.create("core/v1:Pod", "lost", news, Operation(timeout=2))


def job(stack: Stack, name: str, command: str) -> Properties:
    template: dict[str, Any] = {"spec": {**stack.pod_spec(command), "restartPolicy": "Never"}}
    return {"metadata": stack.meta(name), "spec": {"backoffLimit": 0, "template": template}}


def test_create_waits_for_a_job_and_edits_replace_the_job(stack: Stack) -> None:
    made = stack.create("batch/v1:Job", "done", job(stack, "done", "true"))
    assert made.outputs["status"]["succeeded"] == 1  # type: ignore[index,call-overload]
    checked = stack.provider.check(made.type, made.urn, made.inputs, job(stack, "done", ":"))
    diff = stack.provider.diff(made, checked)
    assert diff.replaces
    assert diff.delete_before_replace


def test_error_of_a_failed_job_contains_the_last_log_line(stack: Stack) -> None:
    with pytest.raises(PartialFailure) as error:
        stack.create("batch/v1:Job", "fail", job(stack, "fail", "echo disk full >&2; exit 3"))
    assert "exit code 3; last log line: disk full" in error.value.reason


def test_next_update_runs_a_failed_kubernetes_job_again(stack: Stack) -> None:
    news = job(stack, "again", 'test "$ANSWER" = 42')
    source: Value = {"configMapRef": {"name": "answers", "optional": True}}
    news["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [source]  # type: ignore[index,call-overload]
    with pytest.raises(PartialFailure):
        stack.create("batch/v1:Job", "again", news)
    failed = stack.made[-1]
    answers: Properties = {"metadata": stack.meta("answers"), "data": {"ANSWER": "42"}}
    stack.create("core/v1:ConfigMap", "answers", answers)
    outputs = stack.provider.update(failed, failed.inputs, Operation())
    assert outputs["status"]["succeeded"] == 1  # type: ignore[index,call-overload]


def test_volume_claim_is_bound_and_deleted(stack: Stack) -> None:
    size: Value = {"requests": {"storage": "1024Mi"}}
    news: Properties = {
        "metadata": stack.meta("data"),
        "spec": {"accessModes": ["ReadWriteMany"], "resources": size},
    }
    made = stack.create("core/v1:PersistentVolumeClaim", "data", news)
    assert made.outputs["status"]["phase"] == "Bound"  # type: ignore[index,call-overload]
    assert stack.is_unchanged(made, news)
    stack.provider.delete(made, Operation())
    assert stack.live(made) is None


def test_custom_resource_kind_can_be_defined_and_used(stack: Stack) -> None:
    group = f"{stack.namespace}.example.org"
    schema: Value = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Value = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    definition: Properties = {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version],
        },
    }
    stack.create("apiextensions.k8s.io/v1:CustomResourceDefinition", "definition", definition)
    widget: Properties = {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        # Delete the object in the background. A foreground deletion would wait for Kubernetes'
        # garbage collector, which notices a new kind of object only after a while.
        "metadata": stack.meta(
            "w", annotations={"pulumi.com/deletionPropagationPolicy": "background"}
        ),
        "spec": {"size": 1},
    }
    made = stack.create(f"{group}/v1:Widget", "widget", widget)
    changed = stack.update(made, {**widget, "spec": {"size": 2}})
    assert changed.outputs["spec"] == {"size": 2}


def test_deleting_a_namespace_deletes_its_objects(stack: Stack) -> None:
    name = f"{stack.namespace}-more"
    made = stack.create("core/v1:Namespace", "more", {"metadata": {"name": name}})
    stack.create("core/v1:ConfigMap", "inside", {"metadata": {"name": "a", "namespace": name}})
    stack.provider.delete(made, Operation())
    assert stack.live(made) is None


# ------------------------------------------------------------------------------- other owners


def apply_as_another_manager(stack: Stack, name: str, data: dict[str, str]) -> None:
    ref = Ref(Kind("v1", "ConfigMap"), stack.namespace, name)
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": stack.meta(name), "data": data}
    stack.api.apply(ref, manifest, "someone", force=True)


def test_object_of_another_owner_is_not_changed(stack: Stack) -> None:
    apply_as_another_manager(stack, "theirs", {"a": "1"})
    with pytest.raises(EngineError, match="already exists, and this stack did not create it"):
        stack.create("core/v1:ConfigMap", "theirs", {"metadata": stack.meta("theirs")})


def test_field_of_another_manager_is_a_conflict_unless_forced(stack: Stack) -> None:
    news: Properties = {"metadata": stack.meta("shared"), "data": {"a": "1"}}
    made = stack.create("core/v1:ConfigMap", "shared", news)
    apply_as_another_manager(stack, "shared", {"a": "2"})
    with pytest.raises(EngineError, match=r'data\.a \(conflict with "someone"') as error:
        stack.update(made, {**news, "data": {"a": "3"}})
    assert "\n" not in str(error.value)
    force = stack.meta("shared", annotations={"pulumi.com/patchForce": "true"})
    forced = stack.update(made, {"metadata": force, "data": {"a": "3"}})
    assert forced.outputs["data"] == {"a": "3"}


def test_object_created_by_post_is_adopted(stack: Stack, config: Properties) -> None:
    """Pulumi's plugin creates objects with POST, and this engine updates them with apply.

    The field managers differ, so this engine must take over the fields of Pulumi's plugin.
    """
    news: Properties = {"metadata": stack.meta("posted"), "data": {"a": "1", "b": "2"}}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", **news}
    ref = Ref(Kind("v1", "ConfigMap"), stack.namespace, "posted")
    stack.api.request(
        "POST",
        stack.api.path(ref, name=False),
        query={"fieldManager": "pulumi-kubernetes"},
        body=manifest,
    )
    checked = stack.provider.check("kubernetes:core/v1:ConfigMap", "urn", {}, news)
    upsert = KubernetesProvider({**config, "upsertExistingObjects": True}, preview=False)
    stack.provider = upsert
    made = stack.create("core/v1:ConfigMap", "posted", checked)
    changed = stack.update(made, {**news, "data": {"a": "3"}})
    live = stack.live(changed)
    assert live is not None
    assert live["data"] == {"a": "3"}, "the update also removes a key that POST created"
    assert len(live["metadata"]["managedFields"]) == 1


# -------------------------------------------------------------------------------------- errors


def test_error_names_a_misspelt_field(stack: Stack) -> None:
    news: Properties = {"metadata": stack.meta("typo"), "dta": {"a": "1"}}
    with pytest.raises(EngineError, match=r"ConfigMap .*/typo: .*\.dta: field not declared"):
        stack.create("core/v1:ConfigMap", "typo", news)


def test_error_names_a_missing_namespace(stack: Stack) -> None:
    news: Properties = {"metadata": {"name": "a", "namespace": "engine-test-missing"}}
    with pytest.raises(EngineError, match="namespace 'engine-test-missing' does not exist"):
        stack.create("core/v1:ConfigMap", "homeless", news)


def test_error_names_an_unknown_kind(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.providers.kubernetes.api._DISCOVERY_SECONDS", 0.0)
    news: Properties = {"metadata": stack.meta("w")}
    with pytest.raises(
        EngineError, match=r"the cluster does not have the kind example\.org/v1/Widget"
    ):
        stack.create("example.org/v1:Widget", "w", news)


def test_cancellation_ends_a_wait_at_once(stack: Stack) -> None:
    cancelled = threading.Event()
    threading.Timer(1.0, cancelled.set).start()
    pod = {**stack.pod_spec("sleep 1000"), "nodeSelector": {"no": "way"}}
    start = time.monotonic()
    with pytest.raises(CancelledPartway) as error:
        stack.create(
            "core/v1:Pod",
            "stopped",
            {"metadata": stack.meta("stopped"), "spec": pod},
            Operation(cancelled=cancelled),
        )
    assert time.monotonic() - start < 30, "a cancellation ends the wait long before the timeout"
    assert error.value.outputs["kind"] == "Pod"


# ------------------------------------------------------------------------------------- preview


def test_preview_changes_nothing_and_reports_what_the_server_refuses(
    stack: Stack, config: Properties
) -> None:
    preview = KubernetesProvider(config, preview=True)
    token = "kubernetes:core/v1:Service"
    ports: Value = [{"port": 80}]
    news: Properties = {"metadata": stack.meta("planned"), "spec": {"ports": ports}}
    inputs = preview.check(token, "urn:pulumi:t::p::t::planned", {}, news)
    outputs = preview.preview_outputs(token, inputs, None)
    assert outputs["spec"]["type"] == "ClusterIP", "the preview shows defaults"  # type: ignore[index,call-overload]
    ref = Ref(Kind("v1", "Service"), stack.namespace, "planned")
    assert stack.api.get(ref) is None
    bad: Properties = {**inputs, "spec": {"ports": [{"port": 99999}]}}
    with pytest.raises(EngineError, match=r"spec\.ports\[0\]\.port"):
        preview.preview_outputs(token, bad, None)


def test_several_threads_can_share_one_provider(stack: Stack) -> None:
    errors: list[BaseException] = []

    def make(number: int) -> None:
        try:
            name = f"many-{number}"
            data: Value = {"n": json.dumps(number)}
            stack.create("core/v1:ConfigMap", name, {"metadata": stack.meta(name), "data": data})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
