"""Rules for manifests, without I/O: names, kinds, equality, and changes that force a replacement.

A manifest is a plain JSON object. Facts about kinds are from the Kubernetes API's reference. The
conventions of the state (``__inputs``, ``__fieldManager``, auto-naming) are Pulumi's, so that a
stack can move between this engine and Pulumi's.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias, cast

from engine.errors import CheckError
from engine.paths import contains
from engine.urns import name_of
from engine.values import Path, Properties, Unknown, Value, changed_paths

Manifest: TypeAlias = dict[str, Any]

AUTONAMED: Final = "pulumi.com/autonamed"
SKIP_AWAIT: Final = "pulumi.com/skipAwait"
WAIT_FOR: Final = "pulumi.com/waitFor"
TIMEOUT: Final = "pulumi.com/timeoutSeconds"
PATCH_FORCE: Final = "pulumi.com/patchForce"
PATCH_MANAGER: Final = "pulumi.com/patchFieldManager"
PROPAGATION: Final = "pulumi.com/deletionPropagationPolicy"

INPUTS: Final = "__inputs"
INITIAL_API_VERSION: Final = "__initialApiVersion"
FIELD_MANAGER: Final = "__fieldManager"
MANAGER_PREFIX: Final = "pulumi-kubernetes-"

_SERVER_SET: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)


@dataclass(frozen=True)
class Kind:
    """A kind of object: ``api_version`` is "v1" or "<group>/<version>"."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """The API group; "" for the core group."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


@dataclass(frozen=True)
class Ref:
    """One object: its kind, namespace (None if the kind has none) and name."""

    kind: Kind
    namespace: str | None
    name: str

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.id}"


# ---------------------------------------------------------------------------------------------
# Kinds and names


# API groups that have another name in type tokens.
_GROUPS: Final = {"core": ""}
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
"""A Helm chart as one resource. It is not a Kubernetes object, but has inputs to compare."""
# Remote components and charts: Pulumi's plugin builds their children itself.
_NOT_OBJECTS: Final = ("helm.sh/", "yaml", "kustomize", "kustomize/")


def kind_of(resource_type: str, inputs: Mapping[str, Any]) -> Kind:
    """Return the kind of a resource's object.

    The inputs name the kind, else the type token does ("kubernetes:apps/v1:Job"). Raises CheckError
    on a type that is not a Kubernetes object.
    """
    _, _, rest = resource_type.partition(":")
    module, _, token_kind = rest.partition(":")
    if not token_kind or module.startswith(_NOT_OBJECTS) or "/" not in module:
        raise CheckError(
            "",
            f"{resource_type} is not a Kubernetes object, so this engine cannot create it; deploy"
            " this stack with the `pulumi` command",
        )
    group, _, version = module.partition("/")
    group = _GROUPS.get(group, group)
    api_version = inputs.get("apiVersion") or (f"{group}/{version}" if group else version)
    return Kind(str(api_version), str(inputs.get("kind") or token_kind.removesuffix("Patch")))


def is_patch(resource_type: str, kind: Kind) -> bool:
    """Return whether the resource patches an object that has another owner (``*Patch``)."""
    return resource_type.rpartition(":")[2] == f"{kind.kind}Patch"


# Kinds without a namespace, in API groups that every cluster has. For other groups, only the
# cluster knows which kinds have a namespace.
_CLUSTER_WIDE: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"Namespace", "Node", "PersistentVolume", "ComponentStatus"}),
    "admissionregistration.k8s.io": frozenset(
        {
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        }
    ),
    "apiextensions.k8s.io": frozenset({"CustomResourceDefinition"}),
    "apiregistration.k8s.io": frozenset({"APIService"}),
    "apps": frozenset(),
    "autoscaling": frozenset(),
    "batch": frozenset(),
    "certificates.k8s.io": frozenset({"CertificateSigningRequest", "ClusterTrustBundle"}),
    "coordination.k8s.io": frozenset(),
    "discovery.k8s.io": frozenset(),
    "events.k8s.io": frozenset(),
    "flowcontrol.apiserver.k8s.io": frozenset({"FlowSchema", "PriorityLevelConfiguration"}),
    "networking.k8s.io": frozenset({"IngressClass", "IPAddress", "ServiceCIDR"}),
    "node.k8s.io": frozenset({"RuntimeClass"}),
    "policy": frozenset({"PodSecurityPolicy"}),
    "rbac.authorization.k8s.io": frozenset({"ClusterRole", "ClusterRoleBinding"}),
    "scheduling.k8s.io": frozenset({"PriorityClass"}),
    "storage.k8s.io": frozenset(
        {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"}
    ),
}


def is_namespaced(kind: Kind) -> bool | None:
    """Return whether a kind has a namespace, or None if only the cluster knows."""
    cluster_wide = _CLUSTER_WIDE.get(kind.group)
    return None if cluster_wide is None else kind.kind not in cluster_wide


def metadata(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata of a manifest; empty if the metadata is missing or unknown."""
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def annotation(manifest: Mapping[str, Any], key: str) -> str:
    """Return the value of an annotation, or "" if the annotation is not set."""
    annotations = metadata(manifest).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""


def is_true(manifest: Mapping[str, Any], key: str) -> bool:
    return annotation(manifest, key) == "true"


def autoname(urn: str) -> str:
    """Return a name for an unnamed object: the resource's name and eight hexadecimal digits."""
    return f"{name_of(urn)}-{secrets.token_hex(4)}"


def field_manager(urn: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Return the name of a resource's field manager: from the inputs, the state, or the URN.

    The name from the URN lets a later run recognize an object that an interrupted run created.
    """
    named = annotation(inputs, PATCH_MANAGER) or outputs.get(FIELD_MANAGER)
    if isinstance(named, str) and named:
        return named
    return MANAGER_PREFIX + hashlib.sha256(urn.encode()).hexdigest()[:8]


# ---------------------------------------------------------------------------------------------
# Inputs


def checked(
    kind: Kind, urn: str, olds: Mapping[str, Any], news: Properties, namespace: str | None
) -> Properties:
    """Return the normalised inputs to store, with a name and a namespace.

    ``namespace`` is the default namespace; None for a kind without namespaces. Raises CheckError.
    """
    inputs = cast(Manifest, copy.deepcopy(news))
    inputs.setdefault("apiVersion", kind.api_version)
    inputs.setdefault("kind", kind.kind)
    meta = inputs.setdefault("metadata", {})
    if isinstance(meta, dict):
        _name(meta, urn, olds)
        if namespace is None:
            meta.pop("namespace", None)
        elif not meta.get("namespace"):
            meta["namespace"] = namespace
    return cast(Properties, normalised(inputs))


def _name(meta: dict[str, Any], urn: str, olds: Mapping[str, Any]) -> None:
    if meta.get("name"):
        return
    if meta.get("generateName"):
        raise CheckError(
            "metadata.generateName",
            "server-side apply does not support this field; remove it (the object's name is then"
            " derived from the resource's name in Pulumi), or set metadata.name instead",
        )
    adopted = metadata(olds).get("name") if is_true(olds, AUTONAMED) else None
    meta["name"] = adopted or autoname(urn)
    annotations = meta.setdefault("annotations", {})
    if isinstance(annotations, dict):
        annotations[AUTONAMED] = "true"


def normalised(manifest: Manifest) -> Manifest:
    """Remove fields that the server sets, and move a Secret's stringData to data."""
    result = dict(manifest)
    meta = result.get("metadata")
    if isinstance(meta, dict):
        result["metadata"] = {key: meta[key] for key in meta if key not in _SERVER_SET}
    if result.get("apiVersion") == "v1" and result.get("kind") == "Secret":
        _normalise_secret(result)
    return result


def _normalise_secret(secret: Manifest) -> None:
    text, data = secret.get("stringData"), secret.get("data")
    # Unknown values cannot be encoded yet; the update will encode them.
    if isinstance(text, dict) and text and not any(isinstance(t, Unknown) for t in text.values()):
        encoded = {key: base64.b64encode(str(t).encode()).decode() for key, t in text.items()}
        secret["data"] = {**(data if isinstance(data, dict) else {}), **encoded}
        del secret["stringData"]
    elif isinstance(data, dict):
        secret["data"] = {key: _canonical_base64(value) for key, value in data.items()}


def _canonical_base64(value: Any) -> Any:
    # The server decodes and encodes the value again, which removes line breaks. Do the same here,
    # so that the value is equal to the server's value.
    if not isinstance(value, str):
        return value
    try:
        return base64.b64encode(base64.b64decode("".join(value.split()), validate=True)).decode()
    except binascii.Error:
        return value  # the server will report the error


# Keys of a CustomResourceDefinition's schema that typed SDKs can write only with underscores.
_DASHED: Final = {
    f"x_kubernetes_{name.replace('-', '_')}": f"x-kubernetes-{name}"
    for name in (
        "embedded-resource",
        "int-or-string",
        "list-map-keys",
        "list-type",
        "map-type",
        "preserve-unknown-fields",
        "validations",
    )
}
_UNDERSCORED: Final = {dashed: underscored for underscored, dashed in _DASHED.items()}


def to_server(inputs: Mapping[str, Any]) -> Manifest:
    """Return the object to apply for checked inputs."""
    applied: Manifest = _renamed(
        {k: v for k, v in inputs.items() if not k.startswith("__")}, _DASHED
    )
    return applied


def checkpoint(live: Manifest, inputs: Mapping[str, Any], manager: str) -> Properties:
    """Return a resource's outputs: the live object, and keys that the next run needs."""
    outputs: Properties = _renamed(live, _UNDERSCORED)
    outputs[INPUTS] = dict(inputs)
    outputs[INITIAL_API_VERSION] = str(inputs.get("apiVersion", live.get("apiVersion")))
    outputs[FIELD_MANAGER] = manager
    return outputs


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value


# ---------------------------------------------------------------------------------------------
# Differences


_QUANTITY: Final = re.compile(r"([-+]?[0-9.]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")
_POWERS: Final = {
    suffix: Decimal(10) ** power
    for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
} | {f"{prefix}i": Decimal(1024) ** (i + 1) for i, prefix in enumerate("KMGTPE")}
# Ends of the paths of resource quantities, which can be written in several ways. A text with such a
# key elsewhere, for example in a ConfigMap, is not a quantity.
_QUANTITIES: Final[tuple[Path, ...]] = (
    ("resources", "requests", "*"),
    ("resources", "limits", "*"),
    ("emptyDir", "sizeLimit"),
    ("resourceFieldRef", "divisor"),
    ("spec", "capacity", "*"),
    ("spec", "overhead", "*"),
    ("overhead", "podFixed", "*"),
    ("spec", "hard", "*"),
    *(
        ("spec", "limits", "*", bound, "*")
        for bound in ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min")
    ),
)
_VARIABLE: Final[Path] = ("env", "*", "value")


def quantity(value: Any) -> Decimal | None:
    """Return a quantity ("1500m", "2Gi") as a number, or None if it is invalid."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        return None
    number, suffix = match.groups(default="")
    try:
        if suffix[:1] in ("e", "E") and len(suffix) > 1:
            return Decimal(number + suffix)
        return Decimal(number) * _POWERS.get(suffix, Decimal(1))
    except InvalidOperation:
        return None


def same(path: Path, old: Any, new: Any) -> bool:
    """Return whether two values at a path mean the same to the server."""
    if type(old) is type(new) and old == new:
        return True
    if _ends_with(path, _VARIABLE):
        # The server does not store an empty value.
        return old in (None, "") and new in (None, "")
    if any(_ends_with(path, end) for end in _QUANTITIES):
        parsed = quantity(old)
        return parsed is not None and parsed == quantity(new)
    return False


def _ends_with(path: Path, end: Path) -> bool:
    return len(path) >= len(end) and contains(end, path[-len(end) :])


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the paths at which new inputs differ in meaning from the old ones."""
    before, after = normalised(dict(old)), normalised(dict(new))
    return tuple(
        path
        for path in changed_paths(cast(Value, before), cast(Value, after))
        if not same(path, at(before, path), at(after, path))
    )


def at(value: Any, path: Iterable[str | int]) -> Any:
    """Return the value at a path, or None."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


_SELECTOR: Final = ("spec.selector",)
# Fields that the API refuses to change in place, by group and kind.
_REPLACED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "PersistentVolume"): ("spec",),
    ("", "PersistentVolumeClaim"): (
        "spec.accessModes",
        "spec.dataSource",
        "spec.selector",
        "spec.storageClassName",
        "spec.volumeMode",
        "spec.volumeName",
    ),
    ("", "Pod"): ("spec",),
    ("", "ResourceQuota"): ("spec.scopes",),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP",),
    ("apps", "DaemonSet"): _SELECTOR,
    ("apps", "Deployment"): _SELECTOR,
    ("apps", "ReplicaSet"): _SELECTOR,
    ("apps", "StatefulSet"): (
        "spec.podManagementPolicy",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): (
        "spec.completionMode",
        "spec.completions",
        "spec.parallelism",
        "spec.selector",
        "spec.template",
    ),
    ("node.k8s.io", "RuntimeClass"): ("handler",),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    ("scheduling.k8s.io", "PriorityClass"): ("preemptionPolicy", "value"),
    ("storage.k8s.io", "StorageClass"): (
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ),
}


# Exceptions to `_REPLACED`: fields that can change in place.
_IN_PLACE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "PersistentVolume"): (
        "spec.accessModes",
        "spec.capacity",
        "spec.claimRef",
        "spec.mountOptions",
        "spec.persistentVolumeReclaimPolicy",
        "spec.storageClassName",
        "spec.volumeAttributesClassName",
    ),
    ("", "Pod"): ("spec.activeDeadlineSeconds", "spec.schedulingGates", "spec.tolerations"),
}


@dataclass(frozen=True)
class Mutability:
    """The changes of one kind of object that require a replacement."""

    replaced: tuple[Path, ...]
    in_place: tuple[Path, ...] = ()

    def forces_replacement(self, path: Path) -> bool:
        """Return whether a change at a path cannot be made in place."""
        return any(_meet(path, field) for field in self.replaced) and not any(
            path[: len(field)] == field for field in self.in_place
        )


def mutability(
    kind: Kind, inputs: Mapping[str, Any], config_map_mutable: bool, secret_mutable: bool
) -> Mutability:
    """Return which changes of an object require a replacement.

    The two settings of the provider decide this for ConfigMaps and Secrets.
    """
    fields = ["metadata.name", "metadata.namespace", *_REPLACED.get((kind.group, kind.kind), ())]
    frozen = inputs.get("immutable") is True
    if kind == Kind("v1", "ConfigMap") and (frozen or not config_map_mutable):
        fields += ["binaryData", "data"]
    if kind == Kind("v1", "Secret") and (frozen or not secret_mutable):
        fields += ["data", "stringData"]
    in_place = _IN_PLACE.get((kind.group, kind.kind), ())
    return Mutability(tuple(map(_path, fields)), tuple(map(_path, in_place)))


def _path(field: str) -> Path:
    return tuple(field.split("."))


def _meet(path: Path, field: Path) -> bool:
    """Return whether one path is at or below the other."""
    return all(a == b for a, b in zip(path, field, strict=False))


def refreshed(inputs: Any, live: Any, path: Path = ()) -> Any:
    """Return the inputs. Where the live object's value has another meaning, return that value.

    Compare only fields that the inputs have: the server sets all other fields.
    """
    if isinstance(inputs, dict) and isinstance(live, dict):
        return {
            key: refreshed(inputs[key], live[key], (*path, key)) for key in inputs if key in live
        }
    if isinstance(inputs, list) and isinstance(live, list):
        pairs = _paired(inputs, live)
        return [refreshed(i, v, (*path, n)) for n, (i, v) in enumerate(pairs)]
    return inputs if same(path, inputs, live) else live


def _paired(inputs: list[Any], live: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield matching items of two lists: by name if all items have one, else by position."""
    named = {item["name"]: item for item in live if isinstance(item, dict) and "name" in item}
    by_name = len(named) == len(live) and all(
        isinstance(item, dict) and item.get("name") in named for item in inputs
    )
    if by_name:
        yield from ((item, named[item["name"]]) for item in inputs)
        return
    yield from zip(inputs, live, strict=False)
    # Keep plain values that were added to the list. Ignore added objects: the server adds them.
    yield from ((item, item) for item in live[len(inputs) :] if not isinstance(item, dict))


def imported(live: Manifest) -> Manifest:
    """Return inputs for an object that another client created: all fields that clients can set."""
    inputs = {key: value for key, value in live.items() if key != "status"}
    return normalised(inputs)


# ---------------------------------------------------------------------------------------------
# Owners of fields


# Field managers under whose names Pulumi and kubectl set fields without server-side apply.
_ADOPTED: Final = frozenset(
    {
        "pulumi-kubernetes",
        "pulumi-kubernetes.exe",
        "pulumi-resource-kubernetes",
        "kubectl",
        "before-first-apply",
    }
)


def is_managed_by(live: Manifest, manager: str) -> bool:
    """Return whether a field manager owns any field of an object."""
    return any(entry.get("manager") == manager for entry in _entries(live))


def is_pulumis(live: Manifest) -> bool:
    """Return whether any Pulumi stack, this one or another, has set a field of an object."""
    prefix = MANAGER_PREFIX.rstrip("-")
    return any(str(entry.get("manager")).startswith(prefix) for entry in _entries(live))


def adopted_fields(live: Manifest, manager: str) -> list[Manifest] | None:
    """Return ``managedFields`` with the fields of managers in ``_ADOPTED`` moved to ``manager``.

    Return None if these managers own no fields. Pulumi's plugin, for example, creates objects by
    POST. Without this move, a later server-side apply would conflict with the fields that the
    plugin set.
    """
    entries = _entries(live)
    taken = [e for e in entries if e.get("operation") == "Update" and _is_adopted(e)]
    if not taken:
        return None
    own = [e for e in entries if e.get("operation") == "Apply" and e.get("manager") == manager]
    fields: Manifest = {}
    for entry in (*own, *taken):
        _merge(fields, entry.get("fieldsV1", {}))
    applied = {**taken[-1], "manager": manager, "operation": "Apply", "fieldsV1": fields}
    return [e for e in entries if e not in taken and e not in own] + [applied]


def _is_adopted(entry: Manifest) -> bool:
    return entry.get("manager") in _ADOPTED and not entry.get("subresource")


def _entries(live: Manifest) -> list[Manifest]:
    entries: list[Manifest] = metadata(live).get("managedFields") or []
    return entries


def _merge(into: Manifest, fields: Manifest) -> None:
    for key, value in fields.items():
        _merge(into.setdefault(key, {}), value)
