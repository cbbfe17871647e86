"""Rules about data: resources that hold data must be protected, and a deploy must not replace
workloads that use data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from policy.allowed import Allowed
from policy.holding import HOLDS_DATA
from policy.manifests import LASTING, STATEFUL_SET, at, kind, namespace, object_name, pod, strings
from policy.rule import About, Resource, Rule, StackRule, over


def _protected_data(resource: Resource, _: Allowed) -> Iterator[str]:
    # Treat a Patch resource like its target: its type is the target's type, followed by `Patch`.
    if resource.type.removesuffix("Patch") in HOLDS_DATA and not resource.protected:
        yield "the resource holds data and is not protected"
    if kind(resource) == STATEFUL_SET and at(resource.props, "spec", "volumeClaimTemplates"):
        yield (
            "the deploy cannot protect the PersistentVolumeClaims that Kubernetes creates from "
            "volumeClaimTemplates"
        )


PROTECTED_DATA = Rule(
    About(
        "protected-data",
        "Volumes of jail, state and accounting are protected, and so is their namespace",
        "protection stops an edit that would delete or replace the data",
        "set the resource option protect: true, or protect_data: true in the stack's config for "
        "all such resources; if a StatefulSet uses volumeClaimTemplates, declare "
        "PersistentVolumeClaims instead",
    ),
    _protected_data,
)


def _replaced_data(resources: Sequence[Resource], _: Allowed) -> Iterator[tuple[Resource, str]]:
    there = {
        (namespace(one), object_name(one))
        for one in resources
        if kind(one) == "PersistentVolumeClaim" and _exists(one)
    }
    lasting = [one for one in resources if kind(one) in LASTING]
    writers = Counter(chain.from_iterable(map(_claims, lasting)))

    def judge(workload: Resource) -> Iterator[tuple[Resource, str]]:
        own = [one for one in _claims(workload) if one in there and writers[one] == 1]
        if own and not _exists(workload):
            # Raise UnknownValueError if a value is unknown. In this case, the provider has not
            # asked the API server whether the workload exists, so the rule cannot decide.
            list(strings(workload.props))
            yield (
                workload,
                (
                    "the deploy would replace the only workload that mounts the "
                    f"PersistentVolumeClaim {own[0][1]}"
                ),
            )

    return over(lasting, judge)


def _exists(resource: Resource) -> bool:
    """Return whether the object exists in Kubernetes: only a stored object has a
    resourceVersion."""
    return bool(at(resource.props, "metadata", "resourceVersion"))


def _claims(workload: Resource) -> frozenset[tuple[str, str]]:
    """Return the claims that a workload's pods mount, as namespace and name."""
    found = pod(workload)
    volumes = found.volumes() if found else ()
    names = (at(one, "persistentVolumeClaim", "claimName") for one in volumes)
    return frozenset((namespace(workload), str(one)) for one in names if one)


REPLACED_DATA = StackRule(
    About(
        "replaced-data",
        "A preview of an existing stack replaces no workload that has its own data",
        "the old pods end before the new ones start, so slurmctld or the database is down until"
        " the new pods run",
        "restore the old value of the field that Kubernetes cannot change in place (name, "
        "selector, serviceName or podManagementPolicy)",
    ),
    _replaced_data,
)
