"""Where in Kubernetes' objects the things are that rules speak of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rule import Resource, over

_WITH_TEMPLATE = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController")
STATEFUL_SET = "StatefulSet"
LASTING = ("DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", STATEFUL_SET)
"""Kinds of workloads that do not end by themselves."""
DEFAULT_NAMESPACE = "default"


def kind(resource: Resource) -> str:
    """Kind of a Kubernetes object, "" for anything else; a patch is judged as what it patches."""
    package, _, rest = resource.type.partition(":")
    return rest.rpartition(":")[2].removesuffix("Patch") if package == "kubernetes" else ""


def at(value: Any, *path: str) -> Any:
    """What is at a path of keys; None where there is nothing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def strings(value: Any) -> Iterator[str]:
    """Every text inside a value. Raises UnknownValueError after the last that is known."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from over(value, lambda key: strings(value[key]))
    elif isinstance(value, Sequence):
        yield from over(range(len(value)), lambda index: strings(value[index]))


def namespace(resource: Resource) -> str:
    return str(at(resource.props, "metadata", "namespace") or DEFAULT_NAMESPACE)


def object_name(resource: Resource) -> str:
    """The object's own name, which is not Pulumi's."""
    return str(at(resource.props, "metadata", "name"))


# --- Pods ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pod:
    """Pods as a workload describes them."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    def containers(self) -> tuple["Container", ...]:
        """All containers, those that run before the others included."""
        return tuple(
            Container(container, self, key)
            for key in ("initContainers", "containers", "ephemeralContainers")
            for container in self.spec.get(key) or ()
        )

    def volumes(self) -> Sequence[Mapping[str, Any]]:
        return self.spec.get("volumes") or ()


@dataclass(frozen=True)
class Container:
    """A container of a pod."""

    spec: Mapping[str, Any]
    pod: Pod
    key: str

    @property
    def name(self) -> str:
        return f"container {self.spec['name']}"

    @property
    def stays(self) -> bool:
        """Whether it runs as long as the pod does, as sidecars do among init containers."""
        return self.key == "containers" or self.spec.get("restartPolicy") == "Always"

    def rights(self, key: str) -> Any:
        """A key of its security context, else of the pod's."""
        own = at(self.spec, "securityContext", key)
        return at(self.pod.spec, "securityContext", key) if own is None else own

    def capabilities(self, key: str) -> tuple[str, ...]:
        """Those it has to `add` or `drop`, without the prefix that some write."""
        listed = at(self.spec, "securityContext", "capabilities", key) or ()
        return tuple(str(one).upper().removeprefix("CAP_") for one in listed)


def pod(resource: Resource) -> Pod | None:
    """The pods of a workload, None for anything else."""
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
    """Containers of a workload's pods; none for anything else."""
    found = pod(resource)
    return found.containers() if found else ()


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Whether a label selector means something with these labels; an empty one means all."""
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
