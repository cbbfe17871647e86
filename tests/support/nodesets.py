"""Additional nodesets for the duration of a test, and edits of one nodeset."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

SMALL = {"replicas": 1, "cpus": 1, "cpu_request": 0.1, "memory": "256MiB", "drain_grace": 20}


@contextmanager
def deployed(cluster: Cluster, **settings: Any) -> Iterator[None]:
    """Deploy the stack with additional settings; restore it afterwards."""

    def add(values: dict[str, Any]) -> None:
        for key, value in settings.items():
            values[key] = [*values.get(key, []), *value] if isinstance(value, list) else value

    try:
        with cluster.edited(add):
            cluster.deploy("up")
            yield
    finally:
        cluster.run("scancel --me")
        cluster.deploy("up")
    eventually(
        "the additional nodes are gone", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"}, 120
    )


def edit_nodeset(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    """Return an edit of one nodeset for `Cluster.edited`."""

    def edit(values: dict[str, Any]) -> None:
        (chosen,) = (model for model in values["nodesets"] if model["name"] == name)
        chosen.update(changes)

    return edit


def is_idle(cluster: Cluster, node: str) -> Callable[[], bool]:
    return lambda: cluster.nodes().get(node) == "idle"


def machine_of(cluster: Cluster, node: str) -> str:
    """Return the machine of a node's pod, or "" if the pod has no machine."""
    pods = {pod["metadata"]["name"]: pod for pod in cluster.pods("worker")}
    return str(pods[node]["spec"].get("nodeName", "")) if node in pods else ""
