"""Names, equality and replacement of Kubernetes objects, without a cluster."""

import base64
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CheckError
from engine.providers import Diff, Resource
from engine.providers.kubernetes.manifests import (
    Kind,
    adopted_fields,
    checked,
    checkpoint,
    differences,
    field_manager,
    is_managed_by,
    is_namespaced,
    kind_of,
    quantity,
    refreshed,
    to_server,
)
from engine.providers.kubernetes.provider import KubernetesProvider
from engine.values import UNKNOWN, Path, Properties

URN = "urn:pulumi:dev::p::kubernetes:core/v1:ConfigMap::settings"
CONFIG_MAP = Kind("v1", "ConfigMap")
SECRET = Kind("v1", "Secret")


def offline(**config: Any) -> KubernetesProvider:
    """Return a provider that can check and compare, although its cluster does not exist yet."""
    return KubernetesProvider({"kubeconfig": UNKNOWN, **config}, preview=True)


# ------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("token", "inputs", "kind"),
    [
        ("kubernetes:core/v1:ConfigMap", {}, Kind("v1", "ConfigMap")),
        ("kubernetes:apps/v1:StatefulSet", {}, Kind("apps/v1", "StatefulSet")),
        (
            "kubernetes:rbac.authorization.k8s.io/v1:Role",
            {},
            Kind("rbac.authorization.k8s.io/v1", "Role"),
        ),
        ("kubernetes:core/v1:ConfigMapPatch", {"kind": "ConfigMap"}, Kind("v1", "ConfigMap")),
        (
            "kubernetes:example.org/v1:Widget",
            {"apiVersion": "example.org/v1", "kind": "Widget"},
            Kind("example.org/v1", "Widget"),
        ),
    ],
)
def test_type_token_gives_the_kubernetes_kind(token: str, inputs: Properties, kind: Kind) -> None:
    assert kind_of(token, inputs) == kind


@pytest.mark.parametrize(
    "token", ["kubernetes:helm.sh/v3:Release", "kubernetes:yaml/v2:ConfigFile", "kubernetes:x"]
)
def test_type_that_is_not_a_single_object_is_refused(token: str) -> None:
    with pytest.raises(CheckError, match="deploy this stack with the `pulumi` command"):
        kind_of(token, {})


def test_scope_of_a_built_in_kind_needs_no_cluster() -> None:
    assert is_namespaced(Kind("v1", "Pod")) is True
    assert is_namespaced(Kind("storage.k8s.io/v1", "StorageClass")) is False
    assert is_namespaced(Kind("example.org/v1", "Widget")) is None


# ------------------------------------------------------------------------------------- names


def test_name_of_an_unnamed_object_starts_with_the_resource_name() -> None:
    inputs = checked(CONFIG_MAP, URN, {}, {"data": {"a": "1"}}, "slurm")
    meta = inputs["metadata"]
    assert isinstance(meta, dict)
    assert str(meta["name"]).startswith("settings-")
    assert len(str(meta["name"])) == len("settings-") + 8
    assert meta["namespace"] == "slurm"
    assert meta["annotations"] == {"pulumi.com/autonamed": "true"}
    assert (inputs["apiVersion"], inputs["kind"]) == ("v1", "ConfigMap")


def test_generated_name_stays_the_same_in_later_checks() -> None:
    first = checked(CONFIG_MAP, URN, {}, {}, "slurm")
    again = checked(CONFIG_MAP, URN, first, {"data": {"a": "2"}}, "slurm")
    assert again["metadata"] == first["metadata"]


def test_replacement_gets_a_new_generated_name() -> None:
    first = checked(CONFIG_MAP, URN, {}, {}, "slurm")
    assert checked(CONFIG_MAP, URN, {}, {}, "slurm")["metadata"] != first["metadata"]


def test_name_and_namespace_from_the_program_are_kept() -> None:
    news: Properties = {"metadata": {"name": "fixed", "namespace": "mine"}}
    assert checked(CONFIG_MAP, URN, {}, news, "slurm")["metadata"] == news["metadata"]


def test_check_does_not_change_the_inputs_of_the_program() -> None:
    news: Properties = {"metadata": {}}
    checked(CONFIG_MAP, URN, {}, news, "slurm")
    assert news == {"metadata": {}}


def test_cluster_wide_object_gets_no_namespace() -> None:
    news: Properties = {"metadata": {"name": "a", "namespace": "mistaken"}}
    assert checked(Kind("v1", "Namespace"), URN, {}, news, None)["metadata"] == {"name": "a"}


@pytest.mark.parametrize("unknown", ["metadata", "name", "namespace"])
def test_unknown_name_or_namespace_is_not_replaced_by_a_default(unknown: str) -> None:
    news: Properties = {"metadata": UNKNOWN if unknown == "metadata" else {unknown: UNKNOWN}}
    inputs = checked(CONFIG_MAP, URN, {}, news, "slurm")
    meta = inputs["metadata"]
    assert (meta if unknown == "metadata" else meta[unknown]) is UNKNOWN  # type: ignore[index,call-overload]


def test_field_generatename_is_refused_and_the_error_names_the_remedy() -> None:
    with pytest.raises(
        CheckError, match=r"metadata\.generateName: server-side apply .* set metadata\.name"
    ):
        checked(CONFIG_MAP, URN, {}, {"metadata": {"generateName": "x-"}}, "slurm")


def test_field_manager_comes_from_the_state_or_the_urn() -> None:
    first = field_manager(URN, {}, {})
    assert first == field_manager(URN, {"data": {"a": "b"}}, {})
    assert first != field_manager(URN + "2", {}, {})
    assert field_manager(URN, {}, {"__fieldManager": "pulumi-kubernetes-ab"}) == (
        "pulumi-kubernetes-ab"
    )


# ---------------------------------------------------------------------------------- equality


def test_string_data_is_stored_as_data() -> None:
    inputs = checked(SECRET, URN, {}, {"stringData": {"a": "hush"}, "data": {"b": "Yg=="}}, "x")
    assert inputs["data"] == {"a": base64.b64encode(b"hush").decode(), "b": "Yg=="}
    assert "stringData" not in inputs


def test_unknown_string_data_stays_string_data() -> None:
    inputs = checked(SECRET, URN, {}, {"stringData": {"a": UNKNOWN}}, "x")
    assert inputs["stringData"] == {"a": UNKNOWN}


def test_inputs_drop_fields_that_only_the_server_sets() -> None:
    news: Properties = {"metadata": {"name": "a", "uid": "1", "creationTimestamp": None}}
    assert checked(CONFIG_MAP, URN, {}, news, None)["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("one", "other"),
    [("0.5", "500m"), ("1024Mi", "1Gi"), ("1e3", "1k"), (2, "2"), ("1.5Gi", "1536Mi")],
)
def test_quantities_of_the_same_amount_are_equal(one: Any, other: Any) -> None:
    assert quantity(one) == quantity(other)
    old = {"spec": {"resources": {"requests": {"cpu": one}}}}
    new = {"spec": {"resources": {"requests": {"cpu": other}}}}
    assert differences(old, new) == ()


@given(st.text(max_size=6))
def test_parsing_any_text_as_a_quantity_never_fails(text: str) -> None:
    quantity(text)


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "template", "spec", "volumes", 0, "emptyDir", "sizeLimit"),
        ("spec", "volumeClaimTemplates", 0, "spec", "resources", "requests", "storage"),
        ("spec", "capacity", "storage"),
        ("spec", "hard", "requests.memory"),
        ("spec", "limits", 0, "defaultRequest", "memory"),
        ("spec", "template", "spec", "overhead", "memory"),
    ],
)
def test_quantities_are_compared_by_amount_in_fields_for_quantities(path: Path) -> None:
    assert differences(placed(path, "1024Mi"), placed(path, "1Gi")) == ()
    assert differences(placed(path, "1024Mi"), placed(path, "1025Mi")) == (path,)


@pytest.mark.parametrize(
    "path",
    [
        ("data", "storage"),
        ("data", "sizeLimit"),
        ("metadata", "labels", "storage"),
        ("spec", "template", "spec", "nodeSelector", "storage"),
        ("spec", "template", "spec", "containers", 0, "env", 0, "value"),
    ],
)
def test_text_that_looks_like_a_quantity_is_compared_as_text(path: Path) -> None:
    assert differences(placed(path, "0.5"), placed(path, "500m")) == (path,)


@pytest.mark.parametrize("kept", [{}, {"value": ""}])
def test_absent_and_empty_value_of_a_variable_are_equal(kept: dict[str, Any]) -> None:
    """Kubernetes stores no empty value, so objects that the `pulumi` command has read have none."""

    def pod(**variable: Any) -> dict[str, Any]:
        containers = [{"name": "one", "env": [{"name": "A", **variable}]}]
        return {"spec": {"template": {"spec": {"containers": containers}}}}

    assert differences(pod(**kept), pod(value="")) == ()
    assert differences(pod(value=""), pod(**kept)) == ()
    assert differences(pod(**kept), pod(value="b")) != ()


def placed(path: Path, value: Any) -> dict[str, Any]:
    """Return a manifest that contains only one value, at this path."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return cast(dict[str, Any], value)


# ------------------------------------------------------------------------------- replacement


def diff(
    token: str,
    old: dict[str, Any],
    new: dict[str, Any],
    name: str = "fixed",
    **config: Any,
) -> Diff:
    provider = offline(enableConfigMapMutable=True, enableSecretMutable="true", **config)
    meta: Properties = {"metadata": {"name": name, "namespace": "slurm"}}
    checked_old = provider.check(token, URN, {}, {**meta, **old})
    checked_new = provider.check(token, URN, checked_old, {**meta, **new})
    return provider.diff(Resource(URN, token, "x", "slurm/x", checked_old, {}), checked_new)


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "a"}]}}
OTHER_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "b"}]}}
EDITS: list[tuple[str, str, dict[str, Any], dict[str, Any], bool]] = [
    ("a StatefulSet's replicas", "apps/v1:StatefulSet", spec(replicas=1), spec(replicas=2), False),
    (
        "a StatefulSet's template",
        "apps/v1:StatefulSet",
        spec(template=TEMPLATE),
        spec(template=OTHER_TEMPLATE),
        False,
    ),
    (
        "a StatefulSet's service",
        "apps/v1:StatefulSet",
        spec(serviceName="a"),
        spec(serviceName="b"),
        True,
    ),
    (
        "a StatefulSet's selector",
        "apps/v1:StatefulSet",
        spec(selector={"matchLabels": {"a": "b"}}),
        spec(selector={"matchLabels": {"a": "c"}}),
        True,
    ),
    (
        "a StatefulSet's claims",
        "apps/v1:StatefulSet",
        spec(volumeClaimTemplates=[{"metadata": {"name": "a"}}]),
        spec(volumeClaimTemplates=[{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]),
        True,
    ),
    (
        "a StatefulSet's pod management",
        "apps/v1:StatefulSet",
        spec(),
        spec(podManagementPolicy="Parallel"),
        True,
    ),
    ("a Job's template", "batch/v1:Job", spec(template=TEMPLATE), spec(template={}), True),
    ("a Job's deadline", "batch/v1:Job", spec(activeDeadlineSeconds=1), spec(), False),
    (
        "a claim's class",
        "core/v1:PersistentVolumeClaim",
        spec(storageClassName="a"),
        spec(storageClassName="b"),
        True,
    ),
    (
        "a claim's access",
        "core/v1:PersistentVolumeClaim",
        spec(accessModes=["ReadWriteOnce"]),
        spec(accessModes=["ReadWriteMany"]),
        True,
    ),
    (
        "a claim's size",
        "core/v1:PersistentVolumeClaim",
        spec(resources={"requests": {"storage": "1Gi"}}),
        spec(resources={"requests": {"storage": "2Gi"}}),
        False,
    ),
    ("a Service's port", "core/v1:Service", spec(ports=[{"port": 1}]), spec(ports=[]), False),
    ("a Service's address", "core/v1:Service", spec(), spec(clusterIP="None"), True),
    ("a ConfigMap's data", "core/v1:ConfigMap", {"data": {"a": "1"}}, {"data": {}}, False),
    (
        "an immutable ConfigMap's data",
        "core/v1:ConfigMap",
        {"immutable": True, "data": {"a": "1"}},
        {"immutable": True, "data": {"a": "2"}},
        True,
    ),
    ("a Secret's type", "core/v1:Secret", {"type": "Opaque"}, {"type": "x/y"}, True),
    ("a Secret's text", "core/v1:Secret", {"stringData": {"a": "1"}}, {"stringData": {}}, False),
    ("a Pod's image", "core/v1:Pod", TEMPLATE, OTHER_TEMPLATE, True),
    ("a Pod's tolerations", "core/v1:Pod", spec(tolerations=[]), spec(tolerations=[{}]), False),
    (
        "a binding's role",
        "rbac.authorization.k8s.io/v1:RoleBinding",
        {"roleRef": {"name": "a"}},
        {"roleRef": {"name": "b"}},
        True,
    ),
    (
        "a StorageClass's provisioner",
        "storage.k8s.io/v1:StorageClass",
        {"provisioner": "a"},
        {"provisioner": "b"},
        True,
    ),
    (
        "a volume's source",
        "core/v1:PersistentVolume",
        spec(nfs={"path": "/a"}),
        spec(nfs={"path": "/b"}),
        True,
    ),
    (
        "a volume's size",
        "core/v1:PersistentVolume",
        spec(capacity={"storage": "1Gi"}),
        spec(capacity={"storage": "2Gi"}),
        False,
    ),
]


@pytest.mark.parametrize(
    ("case", "token", "old", "new", "replaced"), EDITS, ids=[e[0] for e in EDITS]
)
def test_edit_replaces_an_object_only_if_the_api_requires_it(
    case: str, token: str, old: dict[str, Any], new: dict[str, Any], replaced: bool
) -> None:
    found = diff(f"kubernetes:{token}", old, new)
    assert found.changed
    assert bool(found.replaces) is replaced, case
    assert found.delete_before_replace is replaced, "a fixed name is free only after deletion"


def test_configmap_is_replaced_unless_the_provider_makes_it_mutable() -> None:
    provider = offline()
    token = "kubernetes:core/v1:ConfigMap"
    old = provider.check(token, URN, {}, {"data": {"a": "1"}})
    new = provider.check(token, URN, old, {"data": {"a": "2"}})
    found = provider.diff(Resource(URN, token, "x", "slurm/x", old, {}), new)
    assert found.replaces == ("data.a",)
    assert not found.delete_before_replace, (
        "two objects with generated names can exist at the same time"
    )


def test_namespace_change_creates_the_new_object_before_deleting_the_old() -> None:
    token = "kubernetes:core/v1:ConfigMap"
    provider = offline()
    old = provider.check(token, URN, {}, {"metadata": {"name": "a", "namespace": "x"}})
    new = provider.check(token, URN, old, {"metadata": {"name": "a", "namespace": "y"}})
    found = provider.diff(Resource(URN, token, "x", "x/a", old, {}), new)
    assert found.replaces == ("metadata.namespace",)
    assert not found.delete_before_replace


def test_equal_inputs_show_no_change() -> None:
    assert (
        diff("kubernetes:core/v1:ConfigMap", {"data": {"a": "1"}}, {"data": {"a": "1"}}) == Diff()
    )


def test_unknown_value_is_shown_as_a_change() -> None:
    found = diff("kubernetes:core/v1:ConfigMap", {"data": {"a": "1"}}, {"data": {"a": UNKNOWN}})
    assert found.changed == ("data.a",)


# -------------------------------------------------------------------------------- live objects


def test_state_has_the_live_object_and_the_inputs() -> None:
    live = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "extra": None}
    outputs = checkpoint(live, {"apiVersion": "v1", "data": {"a": "1"}}, "pulumi-kubernetes-ab")
    assert outputs == {
        **live,
        "__inputs": {"apiVersion": "v1", "data": {"a": "1"}},
        "__initialApiVersion": "v1",
        "__fieldManager": "pulumi-kubernetes-ab",
    }


def test_schema_extension_names_have_dashes_only_on_the_server() -> None:
    stored = {"spec": {"schema": {"x_kubernetes_preserve_unknown_fields": True}}}
    sent = {"spec": {"schema": {"x-kubernetes-preserve-unknown-fields": True}}}
    assert to_server(stored) == sent
    assert checkpoint(sent, stored, "m")["spec"] == stored["spec"]


def test_refresh_reports_only_changes_of_fields_that_the_program_sets() -> None:
    inputs = {
        "data": {"kept": "1", "edited": "1", "removed": "1"},
        "spec": {
            "resources": {"requests": {"cpu": "0.5"}},
            "containers": [{"name": "b", "image": "b"}],
        },
    }
    live = {
        "data": {"kept": "1", "edited": "2", "added": "3"},
        "spec": {
            "resources": {"requests": {"cpu": "500m"}},
            "containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b", "tty": True}],
        },
        "status": {"ready": True},
    }
    assert refreshed(inputs, live) == {
        "data": {"kept": "1", "edited": "2"},
        "spec": {
            "resources": {"requests": {"cpu": "0.5"}},
            "containers": [{"name": "b", "image": "b"}],
        },
    }


def entry(manager: str, operation: str, **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def test_fields_that_pulumis_plugin_created_are_taken_over() -> None:
    data: dict[str, Any] = {"f:a": {}, "f:b": {}}
    entries = [
        entry("pulumi-kubernetes", "Update", **{"f:data": data, "f:meta": {}}),
        entry("ours", "Apply", **{"f:data": {"f:c": {}}}),
        entry("someone", "Update", **{"f:data": {"f:x": {}}}),
    ]
    handed = adopted_fields({"metadata": {"managedFields": entries}}, "ours")
    assert handed == [
        entry("someone", "Update", **{"f:data": {"f:x": {}}}),
        entry("ours", "Apply", **{"f:data": {"f:c": {}, **data}, "f:meta": {}}),
    ]


def test_fields_of_another_manager_are_not_taken_over() -> None:
    live = {"metadata": {"managedFields": [entry("ours", "Apply"), entry("someone", "Update")]}}
    assert adopted_fields(live, "ours") is None
    assert is_managed_by(live, "ours")
    assert not is_managed_by(live, "theirs")
