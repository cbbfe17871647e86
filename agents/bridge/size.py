"""Compute what a pod requests of its machine."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final

from agents.bridge import quantities
from agents.bridge.podspec import Quantities, Resources, Spec

Amounts = Mapping[str, Decimal]
"""Amount of each resource, such as `cpu` (CPUs) and `memory` (bytes)."""
PODS: Final = "pods"
"""Resource of which each pod needs one."""
GPUS: Final = ("amd.com/gpu", "nvidia.com/gpu")
"""Resources of whole GPUs."""


def requested(spec: Spec) -> Amounts:
    """Return a pod's requests, as the kubelet and the default scheduler compute them.

    Containers and sidecars (init containers with restartPolicy `Always`) run at the same time. Each
    other init container runs alone with the sidecars before it. Requests of the pod itself replace
    those of its containers. Source: https://kubernetes.io/docs/concepts/workloads/pods/
    (init-containers, sidecar-containers), and KEP-2837 for requests of pods.
    """
    return {**_at_once(spec, _requests), PODS: Decimal(1)}


def allowed(spec: Spec) -> Amounts:
    """Return what a pod may use: its limits, and its requests where it has no limits.

    Raises `ValueError` for a limit of 0.
    """
    return _at_once(spec, _limits)


def _at_once(spec: Spec, amounts: Callable[[Resources], Amounts]) -> Amounts:
    """Return the largest amounts of the containers that run at the same time."""
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.init_containers:
        with_it = added((sidecars, amounts(container.resources)))
        if container.restart_policy == "Always":
            sidecars = with_it
        most = largest((most, with_it))
    running = added((sidecars, *(amounts(one.resources) for one in spec.containers)))
    total = {**largest((most, running)), **amounts(spec.resources)}
    return added((total, parsed(spec.overhead)))


def parsed(amounts: Quantities) -> Amounts:
    """Parse quantities. Raises `ValueError`."""
    return {name: quantities.parse(amount) for name, amount in amounts.items()}


def added(all_amounts: Iterable[Amounts]) -> Amounts:
    total: dict[str, Decimal] = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            total[name] = total.get(name, Decimal()) + amount
    return total


def subtracted(amounts: Amounts, less: Amounts) -> Amounts:
    return {name: amount - less.get(name, Decimal()) for name, amount in amounts.items()}


def _requests(resources: Resources) -> Amounts:
    # The API server copies a limit to a missing request.
    return parsed({**resources.limits, **resources.requests})


def _limits(resources: Resources) -> Amounts:
    quantities.refuse_zero(resources.limits)
    return parsed({**resources.requests, **resources.limits})


def largest(all_amounts: Iterable[Amounts]) -> Amounts:
    """Return the largest amount of each resource."""
    most: dict[str, Decimal] = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            most[name] = max(most.get(name, Decimal()), amount)
    return most
