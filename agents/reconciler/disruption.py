"""Stop Kubernetes from evicting the pods of nodes with jobs.

`kubectl drain`, upgrades of machines and autoscalers evict pods. Kubernetes refuses an eviction
that leaves a PodDisruptionBudget with fewer than `minAvailable` pods. This budget selects exactly
the pods of nodes with jobs, and requires all of them.

The budget leaves out one kind of node: its machine must be emptied, but the drain limit
(`reconciler.share`) permits no further drain. New jobs can start on such a node at any time, so an
eviction might never succeed. When Kubernetes evicts the node's pod, images/worker/leave drains the
node, and the jobs have the nodeset's `drain_grace` to end.
"""

from collections.abc import Collection

from agents import labels
from agents.kubernetes import MERGE, Api, Object
from agents.reconciler.observed import Observed


class Budget:
    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"

    def keep(self, observed: Observed, refused: Collection[str]) -> None:
        """Write the budget if the set of nodes with jobs has changed.

        `refused` are the names of nodes to leave out. Raises `KubernetesError`.
        """
        wanted = spec([name for name in busy(observed) if name not in refused])
        found = self._api.ask("GET", self._path).get("spec", {})
        if {key: found.get(key) for key in wanted} != wanted:
            self._api.ask("PATCH", self._path, {"spec": wanted}, kind=MERGE)


def busy(observed: Observed) -> list[str]:
    """Return the pods of nodes with jobs. Terminating pods are left out, because they need no
    protection."""
    return [
        name
        for name, record in sorted(observed.records.items())
        if record.has_jobs and name in observed.pods and observed.pods[name].leaves is None
    ]


def spec(names: Collection[str]) -> Object:
    """Return the fields of a budget that protects these pods.

    If there are no pods, the budget has no selector, and therefore selects no pod.
    """
    # Select by the component too: names alone could also select pods of other components.
    workers = {labels.COMPONENT: labels.WORKER}
    one_of = {"key": labels.POD, "operator": "In", "values": list(names)}
    selector = {"matchLabels": workers, "matchExpressions": [one_of]} if names else None
    return {"minAvailable": len(names), "selector": selector}
