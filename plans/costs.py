"""Find the billed resources that a deploy would add or remove, from the resources' inputs.

The inputs have the names of the Kubernetes API and of these SDK resources:
- Nebius: `Mk8sV1Cluster`, `Mk8sV1NodeGroup`, `ComputeV1Filesystem`;
- AWS: `ec2.NatGateway`, `eks.Cluster`, `fsx.LustreFileSystem`, `eks.NodeGroup`; the inputs
  of the EKS SDK's `ManagedNodeGroup` have the same names.

The costs do not include addresses and traffic. They also do not include boot disks if an EC2 launch
template or the cloud's default sets their size.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from components.conventions import (
    ANNOTATION_COST,
    ANNOTATION_NODES,
    COST_LOGGED,
    LABEL_COMPONENT,
    LABEL_NODESET,
    LOGIN,
)
from plans.reading import Preview, Step

Inputs = Mapping[str, Any]
_GIB: Final = 1024**3


@dataclass(frozen=True)
class Cost:
    """Amount of a billed resource; `amount` is None if the amount is unknown before the deploy."""

    what: str
    """Kind of resource, such as "Slurm nodes"."""
    name: str
    """Name, for example of a nodeset."""
    amount: Decimal | None
    unit: str = ""
    each: str = ""
    """Size or type of one unit, such as one node."""


@dataclass(frozen=True)
class Difference:
    """A change of the amount or type of a billed resource."""

    what: str
    name: str
    before: Cost | None
    after: Cost | None

    @property
    def more(self) -> Decimal | None:
        """Change of the amount, or None if one of the amounts is unknown."""
        sides = (self.before, self.after)
        amounts = [Decimal(0) if side is None else side.amount for side in sides]
        if amounts[0] is None or amounts[1] is None:
            return None
        return amounts[1] - amounts[0]


def differences(preview: Preview) -> list[Difference]:
    """Return the cost changes of a preview's steps, in the order of `_ORDER`."""
    found: list[Difference] = []
    for step in preview.steps:
        before, after = ({(c.what, c.name): c for c in side} for side in _sides(step))
        for key in dict.fromkeys((*before, *after)):
            if before.get(key) != after.get(key):
                found.append(Difference(*key, before.get(key), after.get(key)))
    return sorted(found, key=lambda one: (_ORDER.index(one.what), one.name))


def on_demand(preview: Preview) -> list[str]:
    """Return a line with the highest and the lowest cost per hour of nodes on demand.

    If the edit changes this cost, a second line shows the cost before the edit. If the settings
    have no prices, the list is empty.
    """
    before = after = preview.cost_on_demand
    for step in preview.steps:
        old, new = (at(inputs, *_COST) or "" for inputs in (step.old, step.new))
        if step.type == _CONFIG_MAP and (old or new):
            before, after = old, after or new
    lines = [f"{COST_LOGGED}{after or 'no nodes with a price'}"] if before or after else []
    return lines if before in ("", after) else [*lines, f"before this edit: {before}"]


_CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"
_COST: Final = ("metadata", "annotations", ANNOTATION_COST)


def _sides(step: Step) -> tuple[list[Cost], list[Cost]]:
    read = _READERS.get(step.type)
    if read is None:
        return [], []
    return (
        [] if step.old is None else list(read(step.name, step.old)),
        [] if step.new is None else list(read(step.name, step.new)),
    )


def total(cost: Cost | None) -> str:
    """Return the amount with its unit as text."""
    if cost is None:
        return "–"
    return "not known yet" if cost.amount is None else amount(cost.amount, cost.unit)


def amount(value: Decimal, unit: str) -> str:
    return f"{number(value)} {unit}".strip()


_ORDER: Final = (
    *("Control planes", "Machines", "Boot disks", "Slurm nodes", "GPUs", "Login nodes"),
    *("Load balancers", "NAT gateways", "Volumes"),
)


# --- Kubernetes ----------------------------------------------------------------------------------


def _stateful_set(name: str, inputs: Inputs) -> Iterator[Cost]:
    labels = at(inputs, "spec", "template", "metadata", "labels") or {}
    replicas = _whole(at(inputs, "spec", "replicas"))
    if labels.get(LABEL_COMPONENT) == LOGIN:
        yield Cost("Login nodes", LOGIN, replicas)
    nodeset = labels.get(LABEL_NODESET)
    if nodeset:
        yield from _nodes(nodeset, replicas, at(inputs, "spec", "template"))
    for template in at(inputs, "spec", "volumeClaimTemplates") or []:
        claim = at(template, "metadata", "name") or ""
        for one in _claim(f"{name}/{claim}", template):
            total = None if replicas is None or one.amount is None else one.amount * replicas
            yield Cost(one.what, one.name, total, one.unit)


def _on_demand(_name: str, inputs: Inputs) -> Iterator[Cost]:
    """Yield the costs while all nodes on demand are powered up."""
    nodeset = at(inputs, "metadata", "labels", LABEL_NODESET)
    if nodeset:
        most = _whole(at(inputs, "metadata", "annotations", ANNOTATION_NODES))
        yield from _nodes(nodeset, most, inputs.get("template"), ("on demand",))


def _nodes(
    nodeset: str, count: Decimal | None, template: Any, more: tuple[str, ...] = ()
) -> Iterator[Cost]:
    limits = _limits(at(template, "spec", "containers") or [])
    yield Cost("Slurm nodes", nodeset, count, each=", ".join((*_sizes(limits), *more)))
    gpus = {key: value for key, value in limits.items() if _is_gpu(key)}
    if gpus:
        of_one = sum(gpus.values(), Decimal(0))
        total = None if count is None else count * of_one
        yield Cost("GPUs", nodeset, total, each=", ".join((*sorted(gpus), *more)))


def _limits(containers: list[Inputs]) -> dict[str, Decimal]:
    """Return the sum of the containers' limits, by the name of the resource, such as `cpu`."""
    total: dict[str, Decimal] = {}
    for container in containers:
        for key, value in (at(container, "resources", "limits") or {}).items():
            amount = quantity(value)
            if amount is not None:
                total[key] = total.get(key, Decimal(0)) + amount
    return total


def _sizes(limits: Mapping[str, Decimal]) -> Iterator[str]:
    if "cpu" in limits:
        yield f"{number(limits['cpu'])} CPUs"
    if "memory" in limits:
        yield f"{number(limits['memory'] / _GIB)} GiB"
    for key in sorted(limits):
        if _is_gpu(key):
            yield f"{number(limits[key])} {key}"


def _is_gpu(resource: str) -> bool:
    """Return whether a Kubernetes resource counts GPUs or GPU slices, as device plugins name it."""
    name = resource.rpartition("/")[2]
    return name == "gpu" or name.startswith("mig-")


def _claim(name: str, inputs: Inputs) -> Iterator[Cost]:
    if at(inputs, "spec", "volumeName"):
        return  # The claim binds existing storage, such as a cloud's file system.
    size = quantity(at(inputs, "spec", "resources", "requests", "storage"))
    of = at(inputs, "spec", "storageClassName")
    each = f"class {of}" if of else ""
    yield Cost("Volumes", name, None if size is None else size / _GIB, "GiB", each)


def _service(name: str, inputs: Inputs) -> Iterator[Cost]:
    if at(inputs, "spec", "type") == "LoadBalancer":
        yield Cost("Load balancers", name, Decimal(1))


# --- Clouds --------------------------------------------------------------------------------------


def _nebius_machines(name: str, inputs: Inputs) -> Iterator[Cost]:
    bounds = inputs.get("autoscaling")
    count = bounds.get("maxNodeCount") if bounds else inputs.get("fixedNodeCount")
    resources = at(inputs, "template", "resources") or {}
    kind = " ".join(str(resources[key]) for key in ("platform", "preset") if key in resources)
    least = bounds and bounds.get("minNodeCount")
    yield Cost("Machines", name, _whole(count), each=_bounded(kind, least, count))
    yield from _boot_disks(name, count, at(inputs, "template", "bootDisk", "sizeGibibytes"))


def _aws_machines(name: str, inputs: Inputs) -> Iterator[Cost]:
    sizes = inputs.get("scalingConfig") or {}
    least, most = sizes.get("minSize"), sizes.get("maxSize")
    # EKS requires a maxSize of at least 1, even for a fixed group of 0 machines (scalingConfig).
    fixed = sizes.get("desiredSize") == least and most in (least, 1)
    kind = ", ".join(map(str, inputs.get("instanceTypes") or ()))
    count = sizes.get("desiredSize") if fixed else most
    yield Cost("Machines", name, _whole(count), each=_bounded(kind, None if fixed else least, most))
    yield from _boot_disks(name, count, inputs.get("diskSize"))


def _boot_disks(name: str, machines: Any, size: Any) -> Iterator[Cost]:
    """Yield the disks of a group of machines; `size` in GiB is None if the cloud chooses it."""
    if size is not None:
        count, of_one = _whole(machines), _whole(size)
        total = None if count is None or of_one is None else count * of_one
        yield Cost("Boot disks", name, total, "GiB")


def _single(what: str) -> Callable[[str, Inputs], Iterator[Cost]]:
    """Return a reader for a type of resource that is always billed as one unit."""

    def read(name: str, _inputs: Inputs) -> Iterator[Cost]:
        yield Cost(what, name, Decimal(1))

    return read


def _own_machine(name: str, _inputs: Inputs) -> Iterator[Cost]:
    """Yield a machine if the resource is an SSH command that joins a machine to the cluster."""
    kind, _, machine = name.partition("-member-")
    if kind != name:
        yield Cost("Machines", machine, Decimal(1), each="self-managed")


def _bounded(kind: str, least: Any, most: Any) -> str:
    return kind if least is None else f"{kind}, autoscaled from {least} to {most}"


def _nebius_files(name: str, inputs: Inputs) -> Iterator[Cost]:
    each = str(inputs.get("type", ""))
    yield Cost("Volumes", name, _whole(inputs.get("sizeGibibytes")), "GiB", each)


def _lustre(name: str, inputs: Inputs) -> Iterator[Cost]:
    each = str(inputs.get("deploymentType", ""))
    yield Cost("Volumes", name, _whole(inputs.get("storageCapacity")), "GiB", each)


_READERS: Final[Mapping[str, Callable[[str, Inputs], Iterator[Cost]]]] = {
    "kubernetes:apps/v1:StatefulSet": _stateful_set,
    "kubernetes:core/v1:PersistentVolumeClaim": _claim,
    "kubernetes:core/v1:PodTemplate": _on_demand,
    "kubernetes:core/v1:Service": _service,
    "nebius:index/mk8sV1Cluster:Mk8sV1Cluster": _single("Control planes"),
    "nebius:index/mk8sV1NodeGroup:Mk8sV1NodeGroup": _nebius_machines,
    "nebius:index/computeV1Filesystem:ComputeV1Filesystem": _nebius_files,
    "aws:ec2/natGateway:NatGateway": _single("NAT gateways"),
    "aws:eks/cluster:Cluster": _single("Control planes"),
    "eks:index:Cluster": _single("Control planes"),
    "aws:eks/nodeGroup:NodeGroup": _aws_machines,
    "eks:index:ManagedNodeGroup": _aws_machines,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "command:remote:Command": _own_machine,
}


# --- Values --------------------------------------------------------------------------------------


def at(value: Any, *keys: str) -> Any:
    """Return the value at a path of keys, or None if a key is missing or its value is unknown."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def number(amount: Decimal) -> str:
    """Format a number with at most two decimals and without trailing zeros."""
    text = f"{amount:.2f}"
    return text.rstrip("0").rstrip(".")


def _whole(value: Any) -> Decimal | None:
    try:
        return None if value is None else Decimal(str(value))
    except ArithmeticError:
        return None


_parse: Callable[[Any], Decimal] = parse_quantity


def quantity(value: Any) -> Decimal | None:
    """Parse a Kubernetes quantity: a number of CPUs, bytes or devices."""
    try:
        return None if value is None else _parse(value)
    except (ValueError, TypeError):
        return None
