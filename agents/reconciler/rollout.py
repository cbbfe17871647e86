"""Find out whether nodes are still starting after a deploy."""

from agents.kubernetes import Api
from agents.objects import StatefulSet
from agents.reconciler.causes import CONFIG, JAIL, LEAVE, LEAVING, POD, SLURMD
from agents.reconciler.judge import views
from agents.reconciler.observed import Observed
from agents.reconciler.wanted import Wanted

_COMING = frozenset({CONFIG, JAIL, POD, SLURMD, LEAVE, LEAVING})
"""Causes that are normal while a node or its slurmd starts."""


def nodesets_rolling(api: Api, namespace: str, wanted: Wanted) -> list[str]:
    """Return the nodesets with pods that do not match the current settings yet.

    Raises `KubernetesError`. For the fields, see StatefulSet (apps/v1).
    """
    found = []
    for item in api.items(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", StatefulSet):
        meta, status = item["metadata"], item["status"]
        seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
        same = status.get("currentRevision") == status.get("updateRevision")
        if meta["name"] in wanted.nodesets and not (seen and same):
            found.append(meta["name"])
    return found


def is_coming(observed: Observed, wanted: Wanted, now: int) -> bool:
    """Return whether a node is out of service only because it is still starting.

    Nodes without a machine, on an unhealthy machine, or with a drain by others are ignored.
    """
    for view in views(observed, wanted, now).values():
        causes = {finding.cause for finding in view.findings}
        if causes and causes <= _COMING:
            return True
    return False
