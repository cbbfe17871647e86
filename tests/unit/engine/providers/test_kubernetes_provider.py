"""The Kubernetes provider with a fake API server that responds, and fails, like a real one."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import CancelledPartway, CheckError, EngineError, PartialFailure
from engine.providers import Operation, Resource
from engine.providers.kubernetes import KubernetesProvider
from engine.values import UNKNOWN, Properties
from tests.unit.engine.providers.fake_api import Answer, FakeApi, status

Make = Callable[..., KubernetesProvider]
TOKEN = "kubernetes:core/v1:ConfigMap"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
URN = f"urn:pulumi:dev::p::{TOKEN}::settings"
PATH = "/api/v1/namespaces/slurm/configmaps/settings"


def inputs(kind: str = "ConfigMap", **fields: Any) -> Properties:
    meta: Properties = {"name": "settings", "namespace": "slurm"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}


def create(
    provider: KubernetesProvider,
    news: Properties,
    token: str = TOKEN,
    op: Operation | None = None,
) -> Resource:
    resource_id, outputs = provider.create(token, URN, news, op or Operation())
    return Resource(URN, token, "settings", resource_id, news, outputs)


def foreign(**metadata: Any) -> dict[str, Any]:
    """Return a live object of another field manager."""
    meta = {"name": "settings", "namespace": "slurm", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, **metadata}}


def test_object_is_created_changed_and_deleted(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs(data={"a": "1"}))
    assert made.id == "slurm/settings"
    assert made.outputs["data"] == {"a": "1"}
    changed = kubernetes.update(made, inputs(data={"a": "2"}), Operation())
    assert changed["data"] == {"a": "2"}
    assert changed["__inputs"] == inputs(data={"a": "2"})
    kubernetes.delete(made, Operation())
    assert fake.objects == {}
    kubernetes.delete(made, Operation())


def test_create_takes_over_an_object_of_an_interrupted_create(
    fake: FakeApi, provider: Make
) -> None:
    create(provider(), inputs(data={"a": "1"}))
    again = create(provider(), inputs(data={"a": "2"}))
    assert again.outputs["data"] == {"a": "2"}


def test_create_replaces_a_job_of_an_interrupted_create(fake: FakeApi, provider: Make) -> None:
    """The template of a Job cannot change, so the engine must delete the old Job first."""
    token = "kubernetes:batch/v1:Job"
    path = "/apis/batch/v1/namespaces/slurm/jobs/settings"
    fake.kinds["/apis/batch/v1"] = [("jobs", "Job", True)]

    def job(command: str) -> Properties:
        return {
            **inputs("Job", spec={"suspend": True, "template": command}),
            "apiVersion": "batch/v1",
        }

    def refuses_another_template(method: str, requested: str) -> Answer | None:
        if method == "PATCH" and requested == path and path in fake.objects:
            return 422, status(422, "Invalid", "spec.template: field is immutable")
        return None

    create(provider(), job("old"), token)
    fake.script.append(refuses_another_template)
    create(provider(), job("new"), token)
    assert fake.objects[path]["spec"]["template"] == "new"


def test_error_about_an_invalid_field_is_short(fake: FakeApi, provider: Make) -> None:
    causes = [
        {"field": "spec.template", "message": f"Invalid value: {'x' * 6000}: field is immutable"},
        {"field": "spec.replicas", "message": "Invalid value: -1: must be at least 0"},
    ]
    refusal = status(422, "Invalid", "x" * 7000, details={"kind": "Job", "causes": causes})
    fake.script.append(lambda method, _: (422, refusal) if method == "PATCH" else None)
    with pytest.raises(EngineError) as error:
        create(provider(), inputs())
    text = str(error.value)
    assert "spec.template: Invalid value: xxx" in text
    assert ": field is immutable; spec.replicas: Invalid value: -1: must be at least 0" in text
    assert len(text) < 400


def test_error_about_a_secret_hides_its_values(fake: FakeApi, provider: Make) -> None:
    causes = [{"field": "data.key", "message": "Invalid value: password: must be base64"}]
    refusal = status(422, "Invalid", "password", details={"kind": "Secret", "causes": causes})
    fake.script.append(lambda method, _: (422, refusal) if method == "PATCH" else None)
    with pytest.raises(EngineError, match=r"data\.key: invalid value") as error:
        create(provider(), inputs())
    assert "password" not in str(error.value)


def test_create_refuses_an_existing_object(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    with pytest.raises(EngineError, match="already exists, and this stack did not create it"):
        create(provider(), inputs())
    assert fake.writes() == []


def test_upsert_takes_over_an_object_of_another_manager(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    create(provider(upsertExistingObjects=True), inputs(data={"a": "1"}))
    assert fake.objects[PATH]["data"] == {"a": "1"}


def test_create_waits_until_an_object_in_deletion_is_gone(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign(deletionTimestamp="2026-01-01T00:00:00Z")
    threading.Timer(0.05, fake.objects.pop, (PATH,)).start()
    create(provider(), inputs())
    assert fake.objects[PATH]["metadata"]["uid"] != "u"


def test_update_creates_an_object_that_disappeared(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs(data={"a": "1"}))
    fake.objects.clear()
    kubernetes.update(made, inputs(data={"a": "2"}), Operation())
    assert fake.objects[PATH]["data"] == {"a": "2"}


def test_read_finds_no_deleted_object_but_always_a_helm_release(
    fake: FakeApi, provider: Make
) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    assert kubernetes.read(TOKEN, URN, "slurm/settings", made.inputs, made.outputs) is not None
    fake.objects.clear()
    assert kubernetes.read(TOKEN, URN, "slurm/settings", made.inputs, made.outputs) is None
    release = "kubernetes:helm.sh/v3:Release"
    assert kubernetes.read(release, URN, "a", {"name": "a"}, {}) == ("a", {"name": "a"}, {})


def test_patch_changes_an_existing_object_and_deletion_only_releases_it(
    fake: FakeApi, provider: Make
) -> None:
    fake.objects[PATH] = foreign()
    kubernetes = provider()
    token = "kubernetes:core/v1:ConfigMapPatch"
    patch = create(kubernetes, inputs(data={"a": "1"}), token)
    kubernetes.delete(patch, Operation())
    assert PATH in fake.objects
    assert [w.split()[0] for w in fake.writes()] == ["PATCH", "PATCH"]


def test_update_first_takes_over_fields_that_pulumis_plugin_created(
    fake: FakeApi, provider: Make
) -> None:
    entry = {"manager": "pulumi-kubernetes", "operation": "Update", "fieldsV1": {"f:data": {}}}
    fake.objects[PATH] = foreign(managedFields=[entry])
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    provider().update(old, inputs(data={"a": "1"}), Operation())
    assert fake.writes() == [f"PATCH {PATH}", f"PATCH {PATH}"]


def test_takeover_of_fields_survives_a_concurrent_status_update(
    fake: FakeApi, provider: Make
) -> None:
    entry = {"manager": "pulumi-kubernetes", "operation": "Update", "fieldsV1": {"f:data": {}}}
    fake.objects[PATH] = foreign(managedFields=[entry])
    raced = [(422, status(422, "Invalid", "the test operation failed"))]
    fake.script.append(lambda method, _: raced.pop() if method == "PATCH" and raced else None)
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    provider().update(old, inputs(data={"a": "1"}), Operation())
    assert fake.objects[PATH]["data"] == {"a": "1"}


def test_next_update_runs_a_failed_job_again(fake: FakeApi, provider: Make) -> None:
    token = "kubernetes:batch/v1:Job"
    path = "/apis/batch/v1/namespaces/slurm/jobs/settings"
    fake.kinds["/apis/batch/v1"] = [("jobs", "Job", True)]
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimit"}]}
    job = {**inputs("Job", spec={"suspend": True}), "apiVersion": "batch/v1"}
    fake.objects[path] = {**foreign(), "kind": "Job", "status": failed}
    provider().update(Resource(URN, token, "settings", "slurm/settings", job, {}), job, Operation())
    assert fake.writes() == [f"DELETE {path}", f"PATCH {path}"]


# ------------------------------------------------------------------------------------- preview


def test_preview_shows_the_resulting_object_and_writes_nothing(
    fake: FakeApi, provider: Make
) -> None:
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)
    assert outputs["data"] == {"a": "1"}
    assert "uid" not in outputs["metadata"]  # type: ignore[operator]
    assert fake.writes() == []
    assert fake.objects == {}


def test_preview_with_unknown_values_returns_the_inputs(fake: FakeApi, provider: Make) -> None:
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": UNKNOWN}), None)
    assert outputs["data"] == {"a": UNKNOWN}
    assert fake.requests == []


def test_preview_reports_a_refusal_of_the_server(fake: FakeApi, provider: Make) -> None:
    fake.script.append(refuse("PATCH", 422, "Invalid", "ConfigMap is invalid: data[a b]: bad"))
    with pytest.raises(EngineError, match=r"ConfigMap slurm/settings: .*data\[a b\]"):
        provider(preview=True).preview_outputs(TOKEN, inputs(data={"a b": "1"}), None)


def test_preview_reports_a_volume_that_cannot_grow(fake: FakeApi, provider: Make) -> None:
    message = (
        'persistentvolumeclaims "a" is forbidden: only dynamically provisioned pvc can be resized'
    )
    fake.script.append(refuse("PATCH", 403, "Forbidden", message))
    with pytest.raises(EngineError, match="only dynamically provisioned"):
        provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)


def test_preview_does_not_require_the_rights_of_a_deploy(fake: FakeApi, provider: Make) -> None:
    message = 'configmaps "settings" is forbidden: User "ci" cannot patch resource "configmaps"'
    fake.script.append(refuse("PATCH", 403, "Forbidden", message))
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)
    assert outputs["data"] == {"a": "1"}


def test_preview_reports_an_object_of_the_same_name(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    with pytest.raises(EngineError, match="already exists, and this stack did not create it"):
        provider(preview=True).preview_outputs(TOKEN, inputs(), None)


def test_preview_of_a_replacement_ignores_the_old_object(fake: FakeApi, provider: Make) -> None:
    create(provider(), inputs(data={"a": "1"}))
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "2"}), None)
    assert outputs["data"] == {"a": "2"}


def test_previewed_object_has_a_resourceversion_unless_it_is_replaced(
    fake: FakeApi, provider: Make
) -> None:
    """Policies recognize replacements by the missing resourceVersion (policy/data.py)."""
    made = create(provider(), inputs(data={"a": "1"}))
    preview = provider(preview=True)
    news = inputs(data={"a": "2"})

    updated = preview.preview_outputs(TOKEN, news, made)
    replaced = preview.preview_outputs(TOKEN, news, None)

    for kept in (made.outputs, updated):
        assert "resourceVersion" in kept["metadata"]  # type: ignore[operator]
    assert "resourceVersion" not in replaced["metadata"]  # type: ignore[operator]


def test_preview_accepts_a_namespace_that_does_not_exist_yet(fake: FakeApi, provider: Make) -> None:
    fake.script.append(refuse("PATCH", 404, "NotFound", 'namespaces "slurm" not found'))
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)
    assert outputs["data"] == {"a": "1"}


def test_check_and_diff_send_no_request_to_the_cluster(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider(preview=True)
    checked = kubernetes.check(TOKEN, URN, inputs(), inputs())
    kubernetes.diff(Resource(URN, TOKEN, "settings", "slurm/settings", checked, {}), checked)
    assert fake.requests == []


def test_scope_of_a_custom_kind_is_read_from_the_cluster(fake: FakeApi, provider: Make) -> None:
    fake.kinds["/apis/example.org/v1"] = [("widgets", "Widget", False)]
    token = "kubernetes:example.org/v1:Widget"
    checked = provider().check(token, URN, {}, {"metadata": {"name": "w"}})
    assert checked["metadata"] == {"name": "w"}, "a cluster-wide kind must get no namespace"


# -------------------------------------------------------------------------------------- errors


def refuse(method: str, code: int, reason: str, message: str = "", **details: Any) -> Any:
    def scripted(asked: str, _path: str) -> Answer | None:
        return (code, status(code, reason, message, **details)) if asked == method else None

    return scripted


CONFLICT = {
    "details": {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "kubectl" using v1',
                "field": ".data.a",
            }
        ]
    }
}
REFUSALS: list[tuple[str, Any, str]] = [
    (
        "a conflict",
        refuse("PATCH", 409, "Conflict", "Apply failed with 1 conflict", **CONFLICT),
        'data.a (conflict with "kubectl" using v1); remove the fields from the program',
    ),
    (
        "a field that does not exist",
        refuse(
            "PATCH",
            500,
            "",
            "failed to create typed patch object (slurm/settings; /v1, Kind=ConfigMap):"
            " .dta: field not declared in schema",
        ),
        "does not match the schema of its kind: .dta: field not declared in schema",
    ),
    (
        "a missing namespace",
        refuse("PATCH", 404, "NotFound", "", details={"kind": "namespaces", "name": "slurm"}),
        "namespace 'slurm' does not exist; create the namespace before this object",
    ),
    (
        "no permission",
        refuse("PATCH", 403, "Forbidden", 'User "me" cannot patch resource "configmaps"'),
        'User "me" cannot patch resource',
    ),
    (
        "expired credentials",
        refuse("PATCH", 401, "Unauthorized", "Unauthorized"),
        "the cluster rejects the credentials in the kubeconfig",
    ),
    (
        "an admission policy",
        refuse("PATCH", 400, "", 'admission webhook "w" denied the request:\n no\n'),
        'admission webhook "w" denied the request: no',
    ),
]


@pytest.mark.parametrize(("case", "scripted", "message"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_error_names_the_refused_object_in_one_line(
    fake: FakeApi, provider: Make, case: str, scripted: Any, message: str
) -> None:
    fake.script.append(scripted)
    with pytest.raises(EngineError) as error:
        create(provider(), inputs(data={"a": "1"}))
    assert str(error.value).startswith("ConfigMap slurm/settings: "), case
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_error_hides_the_value_of_a_secret(fake: FakeApi, provider: Make) -> None:
    message = (
        "failed to create typed patch object (slurm/settings; /v1, Kind=Secret): .data.a:"
        " expected string, got &value.valueUnstructured{Value:12345}"
    )
    fake.script.append(refuse("PATCH", 500, "", message))
    with pytest.raises(EngineError) as error:
        create(provider(), inputs("Secret", data={"a": 12345}), "kubernetes:core/v1:Secret")
    assert "12345" not in str(error.value)


@pytest.mark.parametrize(
    "trouble",
    [
        (503, status(503, "ServiceUnavailable")),
        (429, status(429, "TooManyRequests")),
        (500, status(500, "InternalError", "etcdserver: leader changed")),
        (0, None),
    ],
    ids=["unavailable", "too many requests", "no leader", "connection lost"],
)
def test_temporary_failures_are_retried(fake: FakeApi, provider: Make, trouble: Answer) -> None:
    kubernetes = provider()
    create(kubernetes, inputs())
    left = [trouble, trouble]
    fake.script.append(lambda _method, _path: left.pop() if left else None)
    kubernetes.delete(Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {}), Operation())
    assert fake.objects == {}


def test_missing_object_is_requested_once(fake: FakeApi, provider: Make) -> None:
    assert provider().read(TOKEN, URN, "slurm/settings", inputs(), {}) is None

    asked = [path for method, path, _ in fake.requests if method == "GET"]
    assert asked.count(PATH) == 1


def test_permanent_failure_is_reported_after_retries(fake: FakeApi, provider: Make) -> None:
    fake.script.append(lambda *_: (503, status(503, "ServiceUnavailable", "is shutting down")))
    with pytest.raises(EngineError, match="is shutting down"):
        create(provider(), inputs())


def test_error_for_an_unreachable_cluster_names_address_and_remedy(
    fake: FakeApi, provider: Make
) -> None:
    fake.port = 1  # no process listens there
    with pytest.raises(EngineError) as error:
        provider(preview=True).check(TOKEN, URN, {}, inputs())
    assert str(error.value) == (
        "the Kubernetes cluster is not reachable at http://127.0.0.1:1: connection refused; start"
        " the local cluster with `make up`"
    )


def test_option_deleteunreachable_removes_objects_of_lost_clusters_from_the_state(
    fake: FakeApi, provider: Make
) -> None:
    fake.port = 1
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    with pytest.raises(EngineError, match="set deleteUnreachable: true on the provider"):
        provider().delete(old, Operation())
    provider(deleteUnreachable="true").delete(old, Operation())


def test_object_without_its_custom_resource_definition_is_treated_as_deleted(
    provider: Make,
) -> None:
    token = "kubernetes:example.org/v1:Widget"
    old = Resource(URN, token, "w", "slurm/w", {"metadata": {"name": "w"}}, {})
    provider().delete(old, Operation())
    assert provider().read(token, URN, "slurm/w", old.inputs) is None


# ------------------------------------------------------------------------------------- waiting


def test_object_that_does_not_become_ready_stays_in_the_state(
    fake: FakeApi, provider: Make
) -> None:
    claim = inputs("PersistentVolumeClaim", spec={}, status={"phase": "Pending"})
    shown: list[str] = []
    with pytest.raises(PartialFailure) as error:
        create(provider(), claim, CLAIM, Operation(timeout=0.05, status=shown.append))
    assert error.value.id == "slurm/settings"
    assert error.value.outputs["__inputs"] == claim
    assert error.value.reason == (
        "PersistentVolumeClaim slurm/settings: not ready after 0.05 s: waiting for a volume;"
        " fix the cause, then deploy again: the engine then continues to wait for this object"
    )
    assert shown == ["waiting for a volume", ""]


def test_wait_ends_when_the_object_is_ready(fake: FakeApi, provider: Make) -> None:
    claim = inputs("PersistentVolumeClaim", spec={}, status={"phase": "Pending"})
    path = "/api/v1/namespaces/slurm/persistentvolumeclaims/settings"

    def bind() -> None:
        while path not in fake.objects:
            time.sleep(0.01)
        fake.objects[path]["status"] = {"phase": "Bound"}

    threading.Thread(target=bind, daemon=True).start()
    made = create(provider(), claim, CLAIM)
    assert made.outputs["status"] == {"phase": "Bound"}


def test_annotation_skipawait_skips_the_wait(provider: Make) -> None:
    claim = inputs("PersistentVolumeClaim", spec={})
    claim["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}  # type: ignore[index,call-overload]
    create(provider(), claim, CLAIM)


def test_object_stays_in_the_state_after_a_cancelled_wait(provider: Make) -> None:
    cancelled = threading.Event()
    threading.Timer(0.05, cancelled.set).start()
    claim = inputs("PersistentVolumeClaim", spec={})
    with pytest.raises(CancelledPartway, match="cancelled: waiting for a volume") as error:
        create(provider(), claim, CLAIM, Operation(cancelled=cancelled))
    assert error.value.outputs["kind"] == "PersistentVolumeClaim"


def test_deletion_waits_for_finalizers_and_the_error_names_them(
    fake: FakeApi, provider: Make
) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    fake.on_delete = lambda _object: False
    fake.objects[PATH]["metadata"]["finalizers"] = ["example.org/held"]
    with pytest.raises(
        PartialFailure,
        match=r"still exists 0\.05 s after the request to delete it: .*example\.org/held",
    ):
        kubernetes.delete(made, Operation(timeout=0.05))


def test_deletion_ends_if_another_object_has_the_name(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())

    def replaced(live: dict[str, Any]) -> bool:
        live["metadata"] = {**live["metadata"], "uid": "another"}
        return False

    fake.on_delete = replaced
    kubernetes.delete(made, Operation(timeout=1))


def test_refresh_reads_changes_by_other_clients(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs(data={"a": "1"}))
    fake.objects[PATH]["data"] = {"a": "2", "b": "3"}
    found = kubernetes.read(TOKEN, URN, "slurm/settings", made.inputs, made.outputs)
    assert found is not None
    resource_id, now, outputs = found
    assert resource_id == "slurm/settings"
    assert now["data"] == {"a": "2"}
    assert outputs["data"] == {"a": "2", "b": "3"}
    assert outputs["__fieldManager"] == made.outputs["__fieldManager"]


def test_read_finds_the_object_of_an_interrupted_create(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    found = kubernetes.read(TOKEN, URN, "", made.inputs, {})
    assert found is not None
    assert found[0] == "slurm/settings"


def test_read_ignores_an_object_of_another_manager(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    assert kubernetes.read(TOKEN, f"{URN}-another", "", made.inputs, {}) is None


def test_refresh_reports_that_an_object_was_deleted(provider: Make) -> None:
    assert provider().read(TOKEN, URN, "slurm/settings", inputs()) is None


# ------------------------------------------------------------------------------------ Helm releases

RELEASE = "kubernetes:helm.sh/v3:Release"
CHART: Properties = {"name": "cilium", "chart": "cilium", "values": {"MTU": 9000}}


def release(outputs: Properties | None = None, **added: Any) -> Resource:
    """Return a release that the `pulumi` command created. `added`: inputs that Pulumi added."""
    return Resource(URN, RELEASE, "cilium", "cilium", {**CHART, **added}, outputs or {})


def test_helm_release_can_be_previewed_without_a_cluster(provider: Make, fake: FakeApi) -> None:
    fake.port = 1  # no process listens there
    kubernetes = provider(preview=True)

    news = kubernetes.check(RELEASE, URN, {}, CHART)

    assert news == CHART
    assert kubernetes.preview_outputs(RELEASE, news, None) == CHART


def test_unchanged_helm_release_shows_no_changes(provider: Make) -> None:
    kubernetes = provider()
    old = release(resourceNames={"DaemonSet": ["kube-system/cilium"]})

    assert kubernetes.diff(old, kubernetes.check(RELEASE, URN, old.inputs, CHART)).changed == ()


@pytest.mark.parametrize("olds", [{}, {**CHART, "values": {"MTU": 1500}}], ids=["new", "changed"])
def test_helm_release_is_refused_and_the_error_names_the_remedy(
    provider: Make, olds: Properties
) -> None:
    with pytest.raises(
        CheckError,
        match=r"Helm releases; deploy this stack with the `pulumi` command$",
    ):
        provider().check(RELEASE, URN, olds, CHART)


def test_helm_release_is_replaced_only_if_its_name_changes(provider: Make) -> None:
    kubernetes = provider(preview=True)
    edited = kubernetes.diff(release(), {**CHART, "values": {"MTU": 1500}})
    renamed = kubernetes.diff(release(), {**CHART, "name": "network"})

    assert (edited.changed, edited.replaces) == (("values.MTU",), ())
    assert renamed.replaces == ("name",)
