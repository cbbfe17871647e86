"""Complete new pods before Kubernetes stores them.

- All pods of some namespaces are scheduled by Slurm.
- Each container of a pod that Slurm schedules gets limits. Otherwise, the pod could use CPUs and
  memory that Slurm gives to jobs.

Slurm counts the limits of a pod, in whole CPUs. Containers without a limit share what the others
leave of these CPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from agents.bridge import quantities, wishes
from agents.bridge.wanted import Wanted

Object = dict[str, Any]
_LEAST: Final = Decimal("0.1")
"""CPUs of a container that requests none beside others."""


def patch(pod: Object, namespace: str, wanted: Wanted) -> list[Object]:
    """Return the changes of a new pod as a JSON patch (RFC 6902).

    Raises `ValueError` if the pod has an unusable quantity, or a limit of 0.
    """
    spec: Object = pod["spec"]
    changed: Object = {}
    if namespace in wanted.namespaces:
        changed["schedulerName"] = wanted.scheduler
    if changed.get("schedulerName", spec.get("schedulerName")) == wanted.scheduler:
        defaults = _Defaults(_wished_cpus(pod), wanted.default_memory * quantities.MIB)
        changed.update(_limited(spec, defaults))
    return [
        {"op": "add", "path": f"/spec/{field}", "value": value}
        for field, value in changed.items()
        if spec.get(field) != value
    ]


@dataclass(frozen=True)
class _Defaults:
    cpus: int
    """Least number of CPUs that Slurm counts for the pod."""
    memory: int
    """Bytes of a container that requests none."""


def _wished_cpus(pod: Object) -> int:
    """Return the CPUs that the pod's own annotations request, or 1."""
    try:
        return wishes.read(pod["metadata"].get("annotations") or {}).cpus_per_task or 1
    except wishes.WishError:
        return 1  # the bridge refuses the pod, and says why


def _limited(spec: Object, defaults: _Defaults) -> Object:
    """Return the fields of a pod's spec with limits for CPUs and memory."""
    for one in (spec, *spec["containers"], *(spec.get("initContainers") or [])):
        quantities.refuse_zero((one.get("resources") or {}).get("limits") or {})
    own = spec.get("resources") or {}
    asked, limits = own.get("requests") or {}, own.get("limits") or {}
    of_pod = {name: limits.get(name, asked.get(name)) for name in ("cpu", "memory")}
    open_names = [name for name, value in of_pod.items() if value is None]
    containers, inits = spec["containers"], spec.get("initContainers") or []
    together = [*(one for one in inits if _is_sidecar(one)), *containers]
    given = {name: _shared(name, together, defaults) for name in open_names}
    changed: Object = {}
    if len(open_names) < len(of_pod):
        known = {name: value for name, value in of_pod.items() if value is not None}
        changed["resources"] = {**own, "limits": {**known, **limits}}
    sizes = iter(_by_container(given, len(together)))
    totals = {name: sum((limit for _, limit in pairs), Decimal()) for name, pairs in given.items()}
    if inits:
        changed["initContainers"] = [
            _with(one, next(sizes)) if _is_sidecar(one) else _with(one, _alone(one, totals))
            for one in inits
        ]
    changed["containers"] = [_with(one, next(sizes)) for one in containers]
    return changed


Size = Mapping[str, tuple[Decimal, Decimal]]
"""Request and limit of each resource of a container."""


def _shared(
    name: str, containers: Sequence[Object], defaults: _Defaults
) -> list[tuple[Decimal, Decimal]]:
    """Return request and limit of each of the containers that run at the same time."""
    default = _LEAST if name == "cpu" else Decimal(defaults.memory)
    amounts = [_asked(one, name, default) for one in containers]
    rest = Decimal()
    if name == "cpu":
        total = sum(amounts, Decimal())
        unlimited = sum(not _has_limit(one, name) for one in containers)
        rest = (max(defaults.cpus, quantities.whole(total)) - total) / max(1, unlimited)
    return [
        (amount, amount if _has_limit(one, name) else amount + rest)
        for one, amount in zip(containers, amounts, strict=True)
    ]


def _by_container(
    given: Mapping[str, Sequence[tuple[Decimal, Decimal]]], number: int
) -> list[Size]:
    return [{name: pairs[index] for name, pairs in given.items()} for index in range(number)]


def _alone(container: Object, totals: Mapping[str, Decimal]) -> Size:
    """Return the size of an init container, which runs before the others: what they have
    together, unless it requests something itself."""
    amounts = {name: _asked(container, name, total) for name, total in totals.items()}
    return {name: (amount, amount) for name, amount in amounts.items()}


def _with(container: Object, size: Size) -> Object:
    """Return a container with requests and limits. Keep those that it has."""
    own = container.get("resources") or {}
    requests, limits = dict(own.get("requests") or {}), dict(own.get("limits") or {})
    for name, (request, limit) in size.items():
        if name not in limits:
            requests.setdefault(name, _text(name, request))
            limits[name] = _text(name, max(limit, request))
    return {**container, "resources": {**own, "requests": requests, "limits": limits}}


def _asked(container: Object, name: str, default: Decimal) -> Decimal:
    """Return what Slurm counts for a container: its limit, or else its request. A request of 0 is
    like none: with an equal limit, the container would have no limit."""
    own = container.get("resources") or {}
    for field in ("limits", "requests"):
        if name in (own.get(field) or {}):
            return quantities.parse(own[field][name]) or default
    return default


def _has_limit(container: Object, name: str) -> bool:
    return name in ((container.get("resources") or {}).get("limits") or {})


def _is_sidecar(container: Object) -> bool:
    return container.get("restartPolicy") == "Always"


def _text(name: str, amount: Decimal) -> str:
    """Return an amount as a quantity of Kubernetes: thousandths of CPUs, or bytes."""
    # At least 1: 0 would be no limit.
    return f"{max(1, int(amount * 1000))}m" if name == "cpu" else str(max(1, int(amount)))
