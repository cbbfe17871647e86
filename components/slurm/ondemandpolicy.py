"""CEL expressions that decide which pods the agent of nodes on demand may create and delete.

The rules of `own_pods` limit the agent to pods of nodes on demand.

The rules of `like_templates` compare a new pod with the PodTemplate of the pod's nodeset, which the
expressions call `params`. Kubernetes evaluates these rules for each PodTemplate of nodes on demand.
It evaluates them again for the template that has the name of the pod's nodeset: see `OnDemand`. The
rules compare all fields that decide what the pod can reach. They do not compare fields that
Kubernetes sets itself, such as requests that follow from limits.
"""

from collections.abc import Iterable, Iterator

from agents import labels
from components import conventions as c
from components.cel import equal_but, literal, part

_NODESET = literal(c.LABEL_NODESET)
# Remove the types with dyn(), because CEL cannot iterate over maps that the API describes as
# objects.
POD = ("pod", "request.operation == 'DELETE' ? dyn(oldObject) : dyn(object)")
LABELS = ("labels", "has(variables.pod.metadata.labels) ? variables.pod.metadata.labels : {}")
IS_OTHER = (
    "isOther",
    (f"!({_NODESET} in variables.labels) || variables.labels[{_NODESET}] != params.metadata.name"),
)
TEMPLATE = ("template", "dyn(params.template)")
"""Variables of the rules, each with its expression. The last two require `params`, a PodTemplate.
IS_OTHER is true if the template belongs to another nodeset. It compares the template's name, which
is the name of its nodeset, because a name, unlike a label, cannot change."""

_POD_FIELDS = (
    *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "dnsConfig"),
    *("dnsPolicy", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID"),
    *("hostUsers", "nodeSelector", "os", "readinessGates", "resourceClaims", "resources"),
    *("restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext"),
    *("shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds"),
    *("topologySpreadConstraints", "volumes"),
)
"""Fields that must be equal in pod and template. Each has a message of its own. All fields that
these lists do not name must also be equal, but share one message."""
_JUDGED_FIELDS = (
    *("containers", "hostname", "imagePullSecrets", "initContainers", "nodeName"),
    *("priorityClassName", "serviceAccountName", "tolerations"),
)
"""Fields that have rules of their own below."""
_DERIVED_FIELDS = ("overhead", "preemptionPolicy", "priority", "serviceAccount")
"""Fields that need no rule, because Kubernetes derives them from other fields. Its admission
plugins RuntimeClass and Priority refuse wrong values, and `serviceAccount` is a copy of
`serviceAccountName`."""
_DERIVED_OF_CONTAINERS = ("imagePullPolicy", "resizePolicy", "resources")
"""Fields of containers to which Kubernetes may add values. `resizePolicy` is harmless, because it
applies only to later edits of the pod."""
_OWN_ANNOTATIONS = ["kubernetes.io/limit-ranger", "kubernetes.io/psp"]
"""Annotations that Kubernetes adds to new pods."""
_OWN_TOLERATIONS = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
"""Keys of tolerations that Kubernetes adds to each pod."""


def own_pods(nodesets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true, each with the message of the error if it is false.

    `nodesets` are the names of the nodesets on demand.
    """
    wanted = {**c.ON_DEMAND_LABELS, c.LABEL_COMPONENT: c.WORKER}
    yield (
        " && ".join(
            f"{literal(key)} in variables.labels"
            f" && variables.labels[{literal(key)}] == {literal(value)}"
            for key, value in wanted.items()
        ),
        "the agent of nodes on demand may create and delete only pods of nodes on demand",
    )
    yield (
        (
            f"request.operation == 'DELETE' || ({_NODESET} in variables.labels"
            f" && variables.labels[{_NODESET}] in {literal(sorted(nodesets))})"
        ),
        "the pod's label must name a nodeset that has on_demand in the settings",
    )


def like_templates() -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true for a new pod, each with the message of the error if it
    is false."""
    for rule, message in _of_new_pods():
        yield f"variables.isOther || ({rule})", message


def _of_new_pods() -> Iterator[tuple[str, str]]:
    yield from _metadata_like_template()
    yield from _fields_like_template()
    yield from _fields_that_kubernetes_sets()


_METADATA = "variables.pod.metadata"
_SPEC, _TEMPLATE_SPEC = "variables.pod.spec", "variables.template.spec"


def _metadata_like_template() -> Iterator[tuple[str, str]]:
    yield (
        (
            f"has({_METADATA}.name)"
            f" && {_METADATA}.name.matches('^' + params.metadata.name + '-[0-9]+$')"
        ),
        "the pod's name must be the name of its nodeset, a hyphen and a number, such as gpu-0",
    )
    theirs, ours = "variables.template.metadata.labels", "variables.labels"
    yield (
        (
            f"has({theirs}) && {theirs}.all(key, key in {ours})"
            f" && {ours}.all(key, key == {literal(labels.POD)}"
            f" ? {ours}[key] == {_METADATA}.name"
            f" : key in {theirs} && {ours}[key] == {theirs}[key])"
        ),
        (
            "the pod's labels must be those in the PodTemplate of the nodeset, and"
            f" {labels.POD} with the pod's name"
        ),
    )
    ours = part(_METADATA, "annotations", "{}")
    theirs = part("variables.template.metadata", "annotations", "{}")
    yield (
        equal_but(theirs, ours, labels.TEMPLATE, *_OWN_ANNOTATIONS),
        "the pod's annotations must be the same as in the PodTemplate of the nodeset",
    )
    yield f"!has({_METADATA}.finalizers)", "the pod may not have finalizers"
    yield (
        (
            f"has({_METADATA}.ownerReferences) && size({_METADATA}.ownerReferences) == 1"
            f" && {_METADATA}.ownerReferences.all(one,"
            " one.kind == 'PodTemplate' && one.name == params.metadata.name"
            " && one.uid == params.metadata.uid"
            " && (!has(one.blockOwnerDeletion) || !one.blockOwnerDeletion))"
        ),
        (
            "ownerReferences must contain only the PodTemplate of the nodeset, without"
            " blockOwnerDeletion"
        ),
    )


def _fields_like_template() -> Iterator[tuple[str, str]]:
    for name in _POD_FIELDS:
        yield (
            _same(_SPEC, _TEMPLATE_SPEC, name),
            f"{name} must be the same as in the PodTemplate of the nodeset",
        )
    yield (
        equal_but(_TEMPLATE_SPEC, _SPEC, *_POD_FIELDS, *_JUDGED_FIELDS, *_DERIVED_FIELDS),
        "all other fields of the spec must be the same as in the PodTemplate of the nodeset",
    )
    for name in ("initContainers", "containers"):
        yield (
            _same_containers(f"{_SPEC}.{name}", f"{_TEMPLATE_SPEC}.{name}"),
            f"{name} must be the same as in the PodTemplate of the nodeset, in the same order",
        )


def _fields_that_kubernetes_sets() -> Iterator[tuple[str, str]]:
    yield (
        f"has({_SPEC}.hostname) && {_SPEC}.hostname == {_METADATA}.name",
        "hostname must be the pod's name",
    )
    yield f"!has({_SPEC}.nodeName)", "nodeName must not be set: the scheduler chooses the machine"
    yield (
        (
            f"!has({_SPEC}.serviceAccountName) || {_SPEC}.serviceAccountName == 'default'"
            f" || {_same(_SPEC, _TEMPLATE_SPEC, 'serviceAccountName')}"
        ),
        "serviceAccountName must be the same as in the PodTemplate of the nodeset, or 'default'",
    )
    # If a pod has no imagePullSecrets, Kubernetes adds those of the pod's service account. So
    # compare them only if the template has some.
    yield (
        (
            f"!has({_TEMPLATE_SPEC}.imagePullSecrets)"
            f" || {_same(_SPEC, _TEMPLATE_SPEC, 'imagePullSecrets')}"
        ),
        "imagePullSecrets must be the same as in the PodTemplate of the nodeset",
    )
    # If a pod has no priority class, Kubernetes sets the cluster's default class. So compare the
    # class only if the template has one. Otherwise, refuse only the system classes.
    yield (
        (
            f"has({_TEMPLATE_SPEC}.priorityClassName)"
            f" ? {_same(_SPEC, _TEMPLATE_SPEC, 'priorityClassName')}"
            f" : !has({_SPEC}.priorityClassName)"
            f" || !{_SPEC}.priorityClassName.startsWith('system-')"
        ),
        "priorityClassName must be the same as in the PodTemplate of the nodeset",
    )
    yield (
        (
            f"{part(_SPEC, 'tolerations', '[]')}.all(one,"
            f" (has(one.key) && one.key in {literal(_OWN_TOLERATIONS)}"
            " && has(one.effect) && one.effect == 'NoExecute')"
            f" || (has(one.key) && {_SPEC}.containers.exists(it, has(it.resources)"
            " && has(it.resources.limits) && one.key in it.resources.limits))"
            f" || one in {part(_TEMPLATE_SPEC, 'tolerations', '[]')})"
        ),
        (
            "tolerations must be the same as in the PodTemplate of the nodeset, except for those"
            " that Kubernetes adds"
        ),
    )


def _same(one: str, other: str, name: str) -> str:
    """Return an expression that is true if a field is equal in both objects, or absent in both."""
    return (
        f"(has({one}.{name}) ? has({other}.{name}) && {one}.{name} == {other}.{name}"
        f" : !has({other}.{name}))"
    )


def _same_containers(ours: str, theirs: str) -> str:
    """Return an expression that is true if both lists have the same containers, in the same order.

    Kubernetes may add requests that follow from limits or a LimitRange, and may set imagePullPolicy
    to Always.
    """
    resources = [part(one, "resources", "{}") for one in ("it", "one")]
    limits = part(resources[0], "limits", "{}")
    asked, given = (part(one, "requests", "{}") for one in resources)
    rules = (
        equal_but("it", "one", *_DERIVED_OF_CONTAINERS),
        (
            f"({_same('one', 'it', 'imagePullPolicy')}"
            " || has(one.imagePullPolicy) && one.imagePullPolicy == 'Always')"
        ),
        equal_but(*resources, "requests"),
        f"{asked}.all(key, key in {given} && {given}[key] == {asked}[key])",
        f"{given}.all(key, key in {asked} || !(key in {limits}) || {given}[key] == {limits}[key])",
    )
    equal = " && ".join(rules)
    names = [f"{containers}.map(one, one.name)" for containers in (ours, theirs)]
    return (
        f"has({ours}) ? has({theirs}) && {names[0]} == {names[1]}"
        f" && {ours}.all(one, {theirs}.exists(it, one.name == it.name && {equal}))"
        f" : !has({theirs})"
    )
