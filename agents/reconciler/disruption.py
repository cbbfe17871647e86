"""Stop Kubernetes from evicting the pods of nodes with jobs.

`kubectl drain`, upgrades of machines and autoscalers evict pods. Kubernetes refuses an eviction
that leaves a PodDisruptionBudget with fewer than `minAvailable` pods. This budget selects exactly
the pods of nodes with jobs, and requires all of them.

It does not protect a node that the drain limit keeps in service although its machine is to be
emptied: new jobs would start there, and the eviction would never succeed. When Kubernetes evicts
its pod, images/worker/leave drains the node, and jobs have the nodeset's `drain_grace`.
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
        """Write the budget if other nodes have jobs now. `refused` are names of nodes to leave out.

        Raises `KubernetesError`.
        """
        wanted = spec([name for name in busy(observed) if name not in refused])
        found = self._api.ask("GET", self._path).get("spec", {})
        if {key: found.get(key) for key in wanted} != wanted:
            self._api.ask("PATCH", self._path, {"spec": wanted}, kind=MERGE)


def busy(observed: Observed) -> list[str]:
    """Return the pods of nodes with jobs. A pod that terminates is no longer evicted."""
    return [
        name
        for name, record in sorted(observed.records.items())
        if record.has_jobs and name in observed.pods and observed.pods[name].leaves is None
    ]


def spec(names: Collection[str]) -> Object:
    """Return the fields of a budget that protects these pods. Without a selector, it has none."""
    # Names alone could also select pods of other components.
    workers = {labels.COMPONENT: labels.WORKER}
    one_of = {"key": labels.POD, "operator": "In", "values": list(names)}
    selector = {"matchLabels": workers, "matchExpressions": [one_of]} if names else None
    return {"minAvailable": len(names), "selector": selector}
