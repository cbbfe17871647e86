"""Functions that read those parts of Kubernetes objects that the rules check."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rule import Resource, over

_WITH_TEMPLATE = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController")
STATEFUL_SET = "StatefulSet"
LASTING = ("DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", STATEFUL_SET)
"""Kinds of workloads whose pods run permanently, unlike those of Jobs."""
DEFAULT_NAMESPACE = "default"


def kind(resource: Resource) -> str:
    """Return the kind of a Kubernetes object, or "" for other resources. A Patch resource has the
    kind of its target."""
    package, _, rest = resource.type.partition(":")
    return rest.rpartition(":")[2].removesuffix("Patch") if package == "kubernetes" else ""


def at(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def strings(value: Any) -> Iterator[str]:
    """Yield every known text in a value. If any text is unknown, raise UnknownValueError after all
    known texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from over(value, lambda key: strings(value[key]))
    elif isinstance(value, Sequence):
        yield from over(range(len(value)), lambda index: strings(value[index]))


def namespace(resource: Resource) -> str:
    return str(at(resource.props, "metadata", "namespace") or DEFAULT_NAMESPACE)


def object_name(resource: Resource) -> str:
    """Return the object's name in Kubernetes, which differs from its name in Pulumi."""
    return str(at(resource.props, "metadata", "name"))


# --- Pods ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pod:
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    def containers(self) -> tuple["Container", ...]:
        """Return all containers, including init containers."""
        return tuple(
            Container(container, self, key)
            for key in ("initContainers", "containers", "ephemeralContainers")
            for container in self.spec.get(key) or ()
        )

    def volumes(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("volumes") or ()


@dataclass(frozen=True)
class Container:
    spec: Mapping[str, Any]
    pod: Pod
    key: str

    @property
    def name(self) -> str:
        return f"container {self.spec['name']}"

    @property
    def stays(self) -> bool:
        """Whether the container runs as long as its pod. This is also true for sidecars in
        initContainers."""
        return self.key == "containers" or self.spec.get("restartPolicy") == "Always"

    def rights(self, key: str) -> Any:
        """Return a value from the container's security context or, by default, from the pod's."""
        own = at(self.spec, "securityContext", key)
        return at(self.pod.spec, "securityContext", key) if own is None else own

    def capabilities(self, key: str) -> tuple[str, ...]:
        """Return the capabilities in `add` or `drop`, without the optional prefix CAP_."""
        listed = at(self.spec, "securityContext", "capabilities", key) or ()
        return tuple(str(one).upper().removeprefix("CAP_") for one in listed)


def pod(resource: Resource) -> Pod | None:
    """Return the pods of a workload, or None for other resources."""
    found = kind(resource)
    holder: Any = None
    if found in (*_WITH_TEMPLATE, STATEFUL_SET):
        holder = at(resource.props, "spec", "template")
    elif found == "CronJob":
        holder = at(resource.props, "spec", "jobTemplate", "spec", "template")
    elif found == "Pod":
        holder = resource.props
    elif found == "PodTemplate":
        holder = at(resource.props, "template")
    if holder is None:
        return None
    return Pod(at(holder, "metadata") or {}, at(holder, "spec") or {})


def containers(resource: Resource) -> tuple[Container, ...]:
    """Return the containers of a workload's pods; empty for other resources."""
    found = pod(resource)
    return found.containers() if found else ()


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Return whether a label selector matches these labels. An empty selector matches all."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == wanted[key] for key in wanted) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = tuple(expression.get("values") or ())
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
