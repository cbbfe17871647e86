"""CEL expressions for the pods that Slurm schedules, and for the bridge itself.

`of_pods` protects these pods from all users except the bridge: a pod acts as a Slurm user only
through a rule in the settings, and only the bridge links pods to jobs. `of_bridge` limits the
bridge to these pods, because its role permits changes of all pods in a namespace.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from agents import labels
from agents.bridge.volumes import SELECTED
from agents.bridge.wanted import Rule
from agents.bridge.wishes import PREFIXES
from components.cel import equal_but, literal, part

_JOB, _BRIDGE = literal(labels.JOB), literal(labels.BRIDGE)
_BOOKKEEPING = ("generation", "managedFields", "resourceVersion")
"""Keys in an object's metadata. The API server itself changes their values in each request."""
_ANY = "*"
"""Stands for all accounts of a user."""
VARIABLES = (
    # Remove the types with dyn(), because CEL cannot iterate over maps that the API describes as
    # objects.
    ("after", "object == null ? dyn(oldObject) : dyn(object)"),
    ("before", "oldObject == null ? dyn(object) : dyn(oldObject)"),
    *(
        (f"{name}_{when}", part(f"variables.{when}.metadata", name, absent))
        for name, absent in (("labels", "{}"), ("annotations", "{}"), ("finalizers", "[]"))
        for when in ("before", "after")
    ),
)
"""Variables of all rules, with their expressions. `before` is the new pod if there is no old one,
and `after` is the old pod if it is deleted."""


def concerns(scheduler: str, namespace: str) -> str:
    """Return an expression that is true for the pods of the bridge of the stack in `namespace`."""
    ours = literal(namespace)
    return " || ".join(
        f"({one} != null && ({one}.spec.schedulerName == {literal(scheduler)}"
        f" || has({one}.metadata.labels) && {_BRIDGE} in {one}.metadata.labels"
        f" && {one}.metadata.labels[{_BRIDGE}] == {ours}))"
        for one in ("object", "oldObject")
    )


def is_completed(scheduler: str, namespaces: Iterable[str]) -> str:
    """Return an expression that is true for the new pods that the bridge completes."""
    return (
        f"object.spec.schedulerName == {literal(scheduler)}"
        f" || request.namespace in {literal(sorted(namespaces))}"
    )


# --- Pods ----------------------------------------------------------------------------------------


def users(rules: Iterable[Rule]) -> tuple[tuple[str, str], ...]:
    """Return variables with the users and accounts that a pod may name in its annotations."""
    names: dict[str, list[str]] = defaultdict(list)
    accounts: dict[str, list[str]] = defaultdict(list)
    for rule in rules:
        names[_place(rule)] += [rule.user, str(rule.uid)]
        accounts[_place(rule)] += rule.accounts or [_ANY]
    places = "[request.namespace + '/', request.namespace + '/' + variables.account]"
    return (
        ("account", part("variables.after.spec", "serviceAccountName", "'default'")),
        ("places", f"{places}.filter(place, place in {literal(sorted(names))})"),
        ("users", _of_places(names)),
        ("accounts", _of_places(accounts)),
    )


def _place(rule: Rule) -> str:
    return f"{rule.namespace}/{rule.service_account or ''}"


def _of_places(lists: Mapping[str, list[str]]) -> str:
    """Return an expression for all items of the lists of the places that cover the pod."""
    table = literal({place: sorted(set(names)) for place, names in sorted(lists.items())})
    return f"variables.places.map(place, {table}[place])"


def of_pods() -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true, each with the message of the error if it is false.

    A pod that already exists may keep what it has, even if the rules have changed. Otherwise
    Kubernetes would refuse all changes of this pod, even those that its removal requires.
    """
    yield (
        f"{_OLD} || size(variables.places) > 0",
        (
            "no rule in bridge.users covers this namespace and service account; ask the operator"
            " of the Slurm cluster to add a rule"
        ),
    )
    for prefix in PREFIXES:
        for name, known in (("user-id", "users"), ("account", "accounts")):
            yield (
                _may_name(literal(f"{prefix}{name}"), known),
                (
                    "no rule in bridge.users lets this pod use the value of its annotation"
                    f" {prefix}{name}; correct the annotation"
                ),
            )
    yield (
        f"{_OLD} || !has(variables.after.spec.nodeName)",
        "Slurm chooses the machines of these pods; remove spec.nodeName",
    )
    yield (
        f"{_OLD} ? {_keeps_link()} : {_is_unlinked()}",
        (
            f"only the bridge may set the labels {labels.JOB} and {labels.BRIDGE}, and the"
            f" finalizer {labels.BRIDGE}; leave them unchanged"
        ),
    )
    yield (
        # Kubernetes omits an empty field.
        "!has(request.subResource) || request.subResource != 'resize'",
        (
            "Slurm has given the pod what it requests; to resize the pod, delete it and create it "
            "again"
        ),
    )


_OLD = "request.operation == 'UPDATE'"


def _may_name(key: str, known: str) -> str:
    """Return an expression that is true if an annotation is absent, unchanged or permitted."""
    before, after = "variables.annotations_before", "variables.annotations_after"
    unchanged = f"{_OLD} && {key} in {before} && {before}[{key}] == {after}[{key}]"
    permitted = f"variables.{known}.exists(one, {literal(_ANY)} in one || {after}[{key}] in one)"
    return f"!({key} in {after}) || {unchanged} || {permitted}"


def _is_unlinked() -> str:
    return (
        f"(!({_JOB} in variables.labels_after) && !({_BRIDGE} in variables.labels_after)"
        f" && !({_BRIDGE} in variables.finalizers_after))"
    )


def _keeps_link() -> str:
    same = " && ".join(
        f"({key} in variables.labels_after) == ({key} in variables.labels_before)"
        f" && (!({key} in variables.labels_after)"
        f" || variables.labels_after[{key}] == variables.labels_before[{key}])"
        for key in (_JOB, _BRIDGE)
    )
    kept = (
        f"({_BRIDGE} in variables.finalizers_after) == ({_BRIDGE} in variables.finalizers_before)"
    )
    return f"({same} && {kept})"


# --- The bridge ----------------------------------------------------------------------------------


def of_bridge(scheduler: str, namespace: str) -> Iterator[tuple[str, str]]:
    """Yield expressions that must be true, each with the message of the error if it is false."""
    claim = "request.resource.resource == 'persistentvolumeclaims'"
    yield (
        f"{claim} ? {_selects_machine()} : ({concerns(scheduler, namespace)})",
        (
            "the bridge may change only pods that Slurm schedules, and of claims only the"
            f" annotation {SELECTED}"
        ),
    )
    changes = (
        equal_but("variables.before", "variables.after", "metadata", "status"),
        equal_but(
            "variables.before.metadata",
            "variables.after.metadata",
            *("finalizers", "labels"),
            *_BOOKKEEPING,
        ),
        equal_but("variables.labels_before", "variables.labels_after", labels.JOB, labels.BRIDGE),
        (
            f"variables.finalizers_before.filter(one, one != {_BRIDGE})"
            f" == variables.finalizers_after.filter(one, one != {_BRIDGE})"
        ),
    )
    yield (
        f"{claim} || {' && '.join(changes)}",
        (
            f"the bridge may change only the labels {labels.JOB} and {labels.BRIDGE}, the"
            f" finalizer {labels.BRIDGE}, and the status of a pod"
        ),
    )


def _selects_machine() -> str:
    """Return an expression that is true if an update of a claim only chooses the machine for which
    its volume is to be created."""
    changes = (
        "request.operation == 'UPDATE'",
        equal_but("variables.before", "variables.after", "metadata"),
        equal_but(
            "variables.before.metadata", "variables.after.metadata", "annotations", *_BOOKKEEPING
        ),
        equal_but("variables.annotations_before", "variables.annotations_after", SELECTED),
    )
    return f"({' && '.join(changes)})"
