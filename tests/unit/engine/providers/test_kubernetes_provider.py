"""The provider against an API that answers as a real one does, errors included."""

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
    """A live object that someone else made."""
    meta = {"name": "settings", "namespace": "slurm", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, **metadata}}


def test_an_object_is_made_changed_and_removed(fake: FakeApi, provider: Make) -> None:
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


def test_an_interrupted_creation_is_continued(fake: FakeApi, provider: Make) -> None:
    create(provider(), inputs(data={"a": "1"}))
    again = create(provider(), inputs(data={"a": "2"}))
    assert again.outputs["data"] == {"a": "2"}


def test_someone_elses_object_is_not_touched(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    with pytest.raises(EngineError, match="already exists, and this stack did not create it"):
        create(provider(), inputs())
    assert fake.writes() == []


def test_someone_elses_object_is_taken_over_where_that_is_asked_for(
    fake: FakeApi, provider: Make
) -> None:
    fake.objects[PATH] = foreign()
    create(provider(upsertExistingObjects=True), inputs(data={"a": "1"}))
    assert fake.objects[PATH]["data"] == {"a": "1"}


def test_an_object_that_is_on_its_way_out_is_waited_for(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign(deletionTimestamp="2026-01-01T00:00:00Z")
    threading.Timer(0.05, fake.objects.pop, (PATH,)).start()
    create(provider(), inputs())
    assert fake.objects[PATH]["metadata"]["uid"] != "u"


def test_an_object_that_vanished_is_made_again_by_an_update(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs(data={"a": "1"}))
    fake.objects.clear()
    kubernetes.update(made, inputs(data={"a": "2"}), Operation())
    assert fake.objects[PATH]["data"] == {"a": "2"}


def test_a_patch_needs_no_new_object_and_gives_up_its_fields(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    kubernetes = provider()
    token = "kubernetes:core/v1:ConfigMapPatch"
    patch = create(kubernetes, inputs(data={"a": "1"}), token)
    kubernetes.delete(patch, Operation())
    assert PATH in fake.objects
    assert [w.split()[0] for w in fake.writes()] == ["PATCH", "PATCH"]


def test_fields_of_a_plain_create_are_taken_over_before_applying(
    fake: FakeApi, provider: Make
) -> None:
    entry = {"manager": "pulumi-kubernetes", "operation": "Update", "fieldsV1": {"f:data": {}}}
    fake.objects[PATH] = foreign(managedFields=[entry])
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    provider().update(old, inputs(data={"a": "1"}), Operation())
    assert fake.writes() == [f"PATCH {PATH}", f"PATCH {PATH}"]


def test_a_status_written_meanwhile_does_not_stop_the_take_over(
    fake: FakeApi, provider: Make
) -> None:
    entry = {"manager": "pulumi-kubernetes", "operation": "Update", "fieldsV1": {"f:data": {}}}
    fake.objects[PATH] = foreign(managedFields=[entry])
    raced = [(422, status(422, "Invalid", "the test operation failed"))]
    fake.script.append(lambda method, _: raced.pop() if method == "PATCH" and raced else None)
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    provider().update(old, inputs(data={"a": "1"}), Operation())
    assert fake.objects[PATH]["data"] == {"a": "1"}


def test_a_job_that_failed_is_run_again_by_the_next_update(fake: FakeApi, provider: Make) -> None:
    token = "kubernetes:batch/v1:Job"
    path = "/apis/batch/v1/namespaces/slurm/jobs/settings"
    fake.kinds["/apis/batch/v1"] = [("jobs", "Job", True)]
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimit"}]}
    job = {**inputs("Job", spec={"suspend": True}), "apiVersion": "batch/v1"}
    fake.objects[path] = {**foreign(), "kind": "Job", "status": failed}
    provider().update(Resource(URN, token, "settings", "slurm/settings", job, {}), job, Operation())
    assert fake.writes() == [f"DELETE {path}", f"PATCH {path}"]


# ------------------------------------------------------------------------------------- preview


def test_a_preview_writes_nothing_and_foresees_the_object(fake: FakeApi, provider: Make) -> None:
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)
    assert outputs["data"] == {"a": "1"}
    assert "uid" not in outputs["metadata"]  # type: ignore[operator]
    assert fake.writes() == []
    assert fake.objects == {}


def test_a_preview_with_unknowns_echoes_the_inputs(fake: FakeApi, provider: Make) -> None:
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": UNKNOWN}), None)
    assert outputs["data"] == {"a": UNKNOWN}
    assert fake.requests == []


def test_a_preview_says_what_the_server_would_refuse(fake: FakeApi, provider: Make) -> None:
    fake.script.append(refuse("PATCH", 422, "Invalid", "ConfigMap is invalid: data[a b]: bad"))
    with pytest.raises(EngineError, match=r"ConfigMap slurm/settings: .*data\[a b\]"):
        provider(preview=True).preview_outputs(TOKEN, inputs(data={"a b": "1"}), None)


def test_a_preview_says_that_a_name_is_taken(fake: FakeApi, provider: Make) -> None:
    fake.objects[PATH] = foreign()
    with pytest.raises(EngineError, match="already exists, and this stack did not create it"):
        provider(preview=True).preview_outputs(TOKEN, inputs(), None)


def test_a_preview_of_a_replacement_expects_the_old_object_to_make_way(
    fake: FakeApi, provider: Make
) -> None:
    create(provider(), inputs(data={"a": "1"}))
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "2"}), None)
    assert outputs["data"] == {"a": "2"}


def test_in_a_preview_only_what_stays_has_a_version(fake: FakeApi, provider: Make) -> None:
    """Policies tell by it what is replaced (policy/data.py)."""
    made = create(provider(), inputs(data={"a": "1"}))
    preview = provider(preview=True)
    news = inputs(data={"a": "2"})

    updated = preview.preview_outputs(TOKEN, news, made)
    replaced = preview.preview_outputs(TOKEN, news, None)

    for stays in (made.outputs, updated):
        assert "resourceVersion" in stays["metadata"]  # type: ignore[operator]
    assert "resourceVersion" not in replaced["metadata"]  # type: ignore[operator]


def test_a_preview_takes_a_namespace_that_is_still_to_be_made_for_granted(
    fake: FakeApi, provider: Make
) -> None:
    fake.script.append(refuse("PATCH", 404, "NotFound", 'namespaces "slurm" not found'))
    outputs = provider(preview=True).preview_outputs(TOKEN, inputs(data={"a": "1"}), None)
    assert outputs["data"] == {"a": "1"}


def test_checking_and_comparing_ask_the_cluster_nothing(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider(preview=True)
    checked = kubernetes.check(TOKEN, URN, inputs(), inputs())
    kubernetes.diff(Resource(URN, TOKEN, "settings", "slurm/settings", checked, {}), checked)
    assert fake.requests == []


def test_a_kind_that_only_the_cluster_knows_is_asked_for(fake: FakeApi, provider: Make) -> None:
    fake.kinds["/apis/example.org/v1"] = [("widgets", "Widget", False)]
    token = "kubernetes:example.org/v1:Widget"
    checked = provider().check(token, URN, {}, {"metadata": {"name": "w"}})
    assert checked["metadata"] == {"name": "w"}, "a cluster-wide kind gets no namespace"


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
        'data.a (conflict with "kubectl" using v1); leave them out, or take them over',
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
        "does not match the schema of the kind: .dta: field not declared in schema",
    ),
    (
        "a missing namespace",
        refuse("PATCH", 404, "NotFound", "", details={"kind": "namespaces", "name": "slurm"}),
        "namespace 'slurm' does not exist; create it in the program before this",
    ),
    (
        "no permission",
        refuse("PATCH", 403, "Forbidden", 'User "me" cannot patch resource "configmaps"'),
        'User "me" cannot patch resource',
    ),
    (
        "credentials that ran out",
        refuse("PATCH", 401, "Unauthorized", "Unauthorized"),
        "the cluster rejects the credentials in the kubeconfig",
    ),
    (
        "an admission policy",
        refuse("PATCH", 400, "", 'admission webhook "w" denied the request:\n no\n'),
        'admission webhook "w" denied the request: no',
    ),
]


@pytest.mark.parametrize(("what", "scripted", "said"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_refusal_is_one_line_that_names_the_object(
    fake: FakeApi, provider: Make, what: str, scripted: Any, said: str
) -> None:
    fake.script.append(scripted)
    with pytest.raises(EngineError) as error:
        create(provider(), inputs(data={"a": "1"}))
    assert str(error.value).startswith("ConfigMap slurm/settings: "), what
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_secrets_value_is_not_repeated_in_an_error(fake: FakeApi, provider: Make) -> None:
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
def test_trouble_that_passes_is_waited_out(fake: FakeApi, provider: Make, trouble: Answer) -> None:
    kubernetes = provider()
    create(kubernetes, inputs())
    left = [trouble, trouble]
    fake.script.append(lambda _method, _path: left.pop() if left else None)
    kubernetes.delete(Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {}), Operation())
    assert fake.objects == {}


def test_a_missing_object_is_asked_for_once(fake: FakeApi, provider: Make) -> None:
    assert provider().read(TOKEN, URN, "slurm/settings", inputs(), {}) is None

    asked = [path for method, path, _ in fake.requests if method == "GET"]
    assert asked.count(PATH) == 1


def test_trouble_that_does_not_pass_is_told(fake: FakeApi, provider: Make) -> None:
    fake.script.append(lambda *_: (503, status(503, "ServiceUnavailable", "is shutting down")))
    with pytest.raises(EngineError, match="is shutting down"):
        create(provider(), inputs())


def test_a_cluster_that_does_not_answer_is_named_with_the_remedy(
    fake: FakeApi, provider: Make
) -> None:
    fake.port = 1  # nobody listens there
    with pytest.raises(EngineError) as error:
        provider(preview=True).check(TOKEN, URN, {}, inputs())
    assert str(error.value) == (
        "cluster not reachable at http://127.0.0.1:1: connection refused; is it running?"
        " `make up` starts the local cluster"
    )


def test_objects_of_a_lost_cluster_are_forgotten_only_if_asked(
    fake: FakeApi, provider: Make
) -> None:
    fake.port = 1
    old = Resource(URN, TOKEN, "settings", "slurm/settings", inputs(), {})
    with pytest.raises(EngineError, match="set deleteUnreachable on the provider"):
        provider().delete(old, Operation())
    provider(deleteUnreachable="true").delete(old, Operation())


def test_a_kind_whose_definition_is_gone_has_no_objects_left(provider: Make) -> None:
    token = "kubernetes:example.org/v1:Widget"
    old = Resource(URN, token, "w", "slurm/w", {"metadata": {"name": "w"}}, {})
    provider().delete(old, Operation())
    assert provider().read(token, URN, "slurm/w", old.inputs) is None


# ------------------------------------------------------------------------------------- waiting


def test_an_object_that_does_not_become_ready_is_kept_for_the_next_run(
    fake: FakeApi, provider: Make
) -> None:
    claim = inputs("PersistentVolumeClaim", spec={}, status={"phase": "Pending"})
    shown: list[str] = []
    with pytest.raises(PartialFailure) as error:
        create(provider(), claim, CLAIM, Operation(timeout=0.05, status=shown.append))
    assert error.value.id == "slurm/settings"
    assert error.value.outputs["__inputs"] == claim
    assert error.value.reason == (
        "PersistentVolumeClaim slurm/settings: not ready after 0.05 s: waiting for a volume"
    )
    assert shown == ["waiting for a volume", ""]


def test_readiness_ends_the_wait(fake: FakeApi, provider: Make) -> None:
    claim = inputs("PersistentVolumeClaim", spec={}, status={"phase": "Pending"})
    path = "/api/v1/namespaces/slurm/persistentvolumeclaims/settings"

    def bind() -> None:
        while path not in fake.objects:
            time.sleep(0.01)
        fake.objects[path]["status"] = {"phase": "Bound"}

    threading.Thread(target=bind, daemon=True).start()
    made = create(provider(), claim, CLAIM)
    assert made.outputs["status"] == {"phase": "Bound"}


def test_a_wait_can_be_skipped(provider: Make) -> None:
    claim = inputs("PersistentVolumeClaim", spec={})
    claim["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}  # type: ignore[index,call-overload]
    create(provider(), claim, CLAIM)


def test_a_cancelled_wait_keeps_what_exists(provider: Make) -> None:
    cancelled = threading.Event()
    threading.Timer(0.05, cancelled.set).start()
    claim = inputs("PersistentVolumeClaim", spec={})
    with pytest.raises(CancelledPartway, match="cancelled: waiting for a volume") as error:
        create(provider(), claim, CLAIM, Operation(cancelled=cancelled))
    assert error.value.outputs["kind"] == "PersistentVolumeClaim"


def test_a_removal_waits_for_the_finalizers_and_names_them(fake: FakeApi, provider: Make) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    fake.on_delete = lambda _object: False
    fake.objects[PATH]["metadata"]["finalizers"] = ["example.org/held"]
    with pytest.raises(PartialFailure, match=r"not deleted after 0\.05 s: .*example\.org/held"):
        kubernetes.delete(made, Operation(timeout=0.05))


def test_another_object_of_the_same_name_does_not_hold_a_removal_up(
    fake: FakeApi, provider: Make
) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())

    def replaced(live: dict[str, Any]) -> bool:
        live["metadata"] = {**live["metadata"], "uid": "another"}
        return False

    fake.on_delete = replaced
    kubernetes.delete(made, Operation(timeout=1))


def test_a_refresh_reads_what_someone_changed(fake: FakeApi, provider: Make) -> None:
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


def test_an_object_of_a_creation_whose_end_nobody_saw_is_found_again(
    fake: FakeApi, provider: Make
) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    found = kubernetes.read(TOKEN, URN, "", made.inputs, {})
    assert found is not None
    assert found[0] == "slurm/settings"


def test_somebody_elses_object_is_not_taken_for_an_unfinished_creation(
    fake: FakeApi, provider: Make
) -> None:
    kubernetes = provider()
    made = create(kubernetes, inputs())
    assert kubernetes.read(TOKEN, f"{URN}-another", "", made.inputs, {}) is None


def test_a_refresh_of_what_is_gone_says_so(provider: Make) -> None:
    assert provider().read(TOKEN, URN, "slurm/settings", inputs()) is None


# ------------------------------------------------------------------------------------ Helm releases

RELEASE = "kubernetes:helm.sh/v3:Release"
CHART: Properties = {"name": "cilium", "chart": "cilium", "values": {"MTU": 9000}}


def release(outputs: Properties | None = None, **added: Any) -> Resource:
    """One that the `pulumi` command has made, with what its plugin adds."""
    return Resource(URN, RELEASE, "cilium", "cilium", {**CHART, **added}, outputs or {})


def test_a_release_is_foreseen_without_a_cluster(provider: Make, fake: FakeApi) -> None:
    fake.port = 1  # nobody listens there
    kubernetes = provider(preview=True)

    news = kubernetes.check(RELEASE, URN, {}, CHART)

    assert news == CHART
    assert kubernetes.preview_outputs(RELEASE, news, None) == CHART


def test_a_release_that_is_there_is_left_alone(provider: Make) -> None:
    kubernetes = provider()
    old = release(resourceNames={"DaemonSet": ["kube-system/cilium"]})

    assert kubernetes.diff(old, kubernetes.check(RELEASE, URN, old.inputs, CHART)).changed == ()


@pytest.mark.parametrize("olds", [{}, {**CHART, "values": {"MTU": 1500}}], ids=["new", "changed"])
def test_a_release_is_left_to_the_command_in_one_line(provider: Make, olds: Properties) -> None:
    with pytest.raises(CheckError, match=r"requires Helm: deploy it with the `pulumi` command$"):
        provider().check(RELEASE, URN, olds, CHART)


def test_a_release_is_changed_in_place_but_for_its_name(provider: Make) -> None:
    kubernetes = provider(preview=True)
    edited = kubernetes.diff(release(), {**CHART, "values": {"MTU": 1500}})
    renamed = kubernetes.diff(release(), {**CHART, "name": "network"})

    assert (edited.changed, edited.replaces) == (("values.MTU",), ())
    assert renamed.replaces == ("name",)
