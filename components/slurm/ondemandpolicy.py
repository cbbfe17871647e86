"""Rules for the pods that the agent of nodes on demand may create and delete, in CEL.

`own_pods` limits the agent to pods of nodes on demand. `like_templates` compares a new pod with the
PodTemplate of its nodeset (`params`). Kubernetes evaluates these rules for each PodTemplate on
demand, and again for the one that has the name of the pod's nodeset: see `OnDemand`. They compare
all that decides what the pod can reach, and leave out fields that Kubernetes sets itself, such as
requests that follow from limits.
"""

from collections.abc import Iterable, Iterator

from agents import labels
from components import conventions as c
from components.cel import literal

_NODESET = literal(c.LABEL_NODESET)
POD = ("pod", "request.operation == 'DELETE' ? oldObject : object")
LABELS = ("labels", "has(variables.pod.metadata.labels) ? variables.pod.metadata.labels : {}")
IS_OTHER = (
    "isOther",
    (f"!({_NODESET} in variables.labels) || variables.labels[{_NODESET}] != params.metadata.name"),
)
"""Variables of the rules, each with its expression. `IS_OTHER` requires `params`: a PodTemplate has
the name of its nodeset, which cannot change, unlike its labels."""

_POD_FIELDS = (
    *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "dnsConfig"),
    *("dnsPolicy", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID"),
    *("hostUsers", "nodeSelector", "os", "resourceClaims", "restartPolicy", "runtimeClassName"),
    *("schedulerName", "schedulingGates", "securityContext", "shareProcessNamespace", "subdomain"),
    *("terminationGracePeriodSeconds", "topologySpreadConstraints", "volumes"),
)
_CONTAINER_FIELDS = (
    *("args", "command", "env", "envFrom", "image", "lifecycle", "livenessProbe", "ports"),
    *("readinessProbe", "restartPolicy", "securityContext", "startupProbe", "volumeDevices"),
    *("volumeMounts", "workingDir"),
)
_OWN_TOLERATIONS = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
"""Keys of tolerations that Kubernetes adds to each pod."""


def own_pods(nodesets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true, each with the message of a refusal.

    `nodesets` are the names of the nodesets on demand.
    """
    wanted = {**c.ON_DEMAND_LABELS, c.LABEL_COMPONENT: c.WORKER}
    yield (
        " && ".join(
            f"{literal(key)} in variables.labels"
            f" && variables.labels[{literal(key)}] == {literal(value)}"
            for key, value in wanted.items()
        ),
        "only pods of nodes on demand may be created or deleted",
    )
    yield (
        (
            f"request.operation == 'DELETE' || ({_NODESET} in variables.labels"
            f" && variables.labels[{_NODESET}] in {literal(sorted(nodesets))})"
        ),
        "the pod must belong to a nodeset on demand",
    )


def like_templates() -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true of a new pod, each with the message of a refusal."""
    for rule, message in _of_new_pods():
        yield f"variables.isOther || ({rule})", message


def _of_new_pods() -> Iterator[tuple[str, str]]:
    pod, template = "variables.pod.spec", "params.template.spec"
    for name in _POD_FIELDS:
        yield _same(pod, template, name), f"{name} must be that of the template"
    for name in ("initContainers", "containers"):
        yield _same_containers(f"{pod}.{name}", f"{template}.{name}"), f"{name}: {_DIFFERS}"
    theirs, ours = "params.template.metadata.labels", "variables.labels"
    yield (
        (
            f"has({theirs}) && {theirs}.all(key, key in {ours})"
            f" && {ours}.all(key, key == {literal(labels.POD)}"
            f" ? {ours}[key] == variables.pod.metadata.name"
            f" : key in {theirs} && {ours}[key] == {theirs}[key])"
        ),
        "the pod's labels must be those of the template, and its name",
    )
    yield f"!has({pod}.nodeName)", "the pod may not choose its machine"
    yield (
        (
            f"!has({pod}.serviceAccountName) || {pod}.serviceAccountName == 'default'"
            f" || {_same(pod, template, 'serviceAccountName')}"
        ),
        "the pod may not have a service account",
    )
    # Without a class, Kubernetes adds the cluster's default.
    yield (
        (
            f"has({template}.priorityClassName)"
            f" ? {_same(pod, template, 'priorityClassName')}"
            f" : !has({pod}.priorityClassName) || !{pod}.priorityClassName.startsWith('system-')"
        ),
        "priorityClassName must be that of the template",
    )
    yield (
        (
            f"!has({pod}.tolerations) || {pod}.tolerations.all(one,"
            f" (has(one.key) && one.key in {literal(_OWN_TOLERATIONS)})"
            f" || (has(one.key) && {pod}.containers.exists(it, has(it.resources)"
            " && has(it.resources.limits) && one.key in it.resources.limits))"
            f" || (has({template}.tolerations) && one in {template}.tolerations))"
        ),
        "the pod may have only tolerations of the template",
    )
    metadata = "variables.pod.metadata"
    yield (
        (
            f"!has({metadata}.annotations) || {metadata}.annotations.all(key,"
            f" key == {literal(labels.TEMPLATE)} || key.startsWith('kubernetes.io/')"
            " || (has(params.template.metadata.annotations)"
            " && key in params.template.metadata.annotations"
            f" && {metadata}.annotations[key] == params.template.metadata.annotations[key]))"
        ),
        "the pod may have only annotations of the template",
    )


_DIFFERS = "each must be that of the template"


def _same(one: str, other: str, name: str) -> str:
    """Return an expression: a field is equal in both objects, or absent in both."""
    return (
        f"(has({one}.{name}) ? has({other}.{name}) && {one}.{name} == {other}.{name}"
        f" : !has({other}.{name}))"
    )


def _same_containers(ours: str, theirs: str) -> str:
    """Return an expression: the lists have the same containers, apart from requests.

    Limits are compared, because a pod tolerates the taints of its extended resources.
    """
    limits = (
        "(has(one.resources) && has(one.resources.limits) ?"
        " (has(it.resources) && has(it.resources.limits)"
        " && one.resources.limits == it.resources.limits)"
        " : !(has(it.resources) && has(it.resources.limits)))"
    )
    rules = (*(_same("one", "it", name) for name in _CONTAINER_FIELDS), limits)
    equal = " && ".join(rules)
    return (
        f"has({ours}) ? has({theirs}) && size({ours}) == size({theirs})"
        f" && {ours}.all(one, {theirs}.exists(it, one.name == it.name && {equal}))"
        f" : !has({theirs})"
    )
