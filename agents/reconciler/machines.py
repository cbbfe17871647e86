"""Return nodes to their machines, in nodesets with the setting `keep_machine`.

The pods of such a nodeset have a scheduling gate. Kubernetes schedules a pod only after the
reconciler has removed the gate. Slurm's record of a node contains the machine (`InstanceId`),
because slurmd reports the machine at each start.
"""

from collections.abc import Iterator

from agents import labels, objects
from agents.reconciler.actions import Free, Schedule
from agents.reconciler.observed import Machine, Observed, Pod
from agents.reconciler.wanted import Wanted


def places(observed: Observed, wanted: Wanted, now: int) -> Iterator[Schedule | Free]:
    """Yield the pods that Kubernetes may schedule now, and the pods whose machine is gone."""
    for nodeset, settings in sorted(wanted.nodesets.items()):
        if settings.keep_machine:
            yield from _of_nodeset(wanted.nodes_of(nodeset), observed, now)


def _of_nodeset(names: list[str], observed: Observed, now: int) -> Iterator[Schedule | Free]:
    machines = {name: machine for name in names if (machine := _machine(name, observed))}
    pods = [pod for name in names if (pod := observed.pods.get(name)) and pod.leaves is None]
    gated = [pod for pod in pods if pod.is_gated]
    for pod in gated:
        if machine := machines.get(pod.name):
            yield Schedule(pod.name, pod.uid, machine.name, _hostname(machine))
    # A node without a machine must wait: it could take the machine of a node that is about to
    # return.
    if not any(_returns(observed.pods.get(name), now) for name in machines):
        yield from (Schedule(pod.name, pod.uid) for pod in gated)
    present = {_hostname(machine) for machine in observed.machines.values()}
    for pod in pods:
        if not pod.machine and pod.hostname and pod.hostname not in present:
            yield Free(pod.name, pod.uid, pod.hostname)


def _hostname(machine: Machine) -> str:
    return machine.labels.get(labels.HOSTNAME, machine.name)


def _machine(node: str, observed: Observed) -> Machine | None:
    """Return the machine of a node, or None if the node has none or its machine is gone."""
    record = observed.records.get(node)
    return observed.machines.get(record.machine) if record else None


def _returns(pod: Pod | None, now: int) -> bool:
    """Return whether a node is about to return to its machine.

    Returns False for a pod that is stuck terminating.
    """
    if pod is None or pod.is_gated:
        return True
    return pod.leaves is not None and now - pod.leaves < objects.STUCK
