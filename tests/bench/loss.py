"""Measure how long no controller answers after the active controller's Kubernetes node is lost."""

import datetime
import time
from collections.abc import Callable
from typing import Any

from tests.bench.figures import Figures, say
from tests.support.cluster import Cluster, is_ready
from tests.support.waiting import eventually

LOST, LEFT = "node-1", "node-0"
"""The Kubernetes node that the benchmark freezes, and the node that remains. The API server runs on
the node that remains."""


def measure(figures: Figures, cluster: Cluster) -> None:
    """Measure with a standby controller, then with one controller and a placeholder pod.

    The placeholder pod runs on another Kubernetes node, and reserves room for the controller there.

    The stack runs without accounting: if the lost node had also run slurmdbd, the new controller
    would need at least one more minute.
    """
    cluster.deploy("destroy")
    with cluster.edited(without_accounting):
        cluster.deploy("up")
        say("freezing the controller's Kubernetes node, with a standby controller")
        figures.add(
            "standby controller answers, after the loss of the active controller's node",
            loses_a_node(cluster, since=lambda began: began),
        )
        cluster.deploy("destroy")
    with cluster.edited(one_controller):
        cluster.deploy("up")
        say("freezing the controller's Kubernetes node, with a placeholder pod on the other node")
        figures.add(
            "controller in place of the placeholder answers, after Kubernetes notices the loss",
            loses_a_node(cluster, since=lambda _: noticed(cluster)),
            at_most=15,
        )
        cluster.deploy("destroy")
    cluster.deploy("up")


def without_accounting(values: dict[str, Any]) -> None:
    values["accounting"] = {"enabled": False}


def one_controller(values: dict[str, Any]) -> None:
    without_accounting(values)
    values["controller"]["standby"] = False


def loses_a_node(cluster: Cluster, since: Callable[[float], float]) -> float:
    """Return the seconds until a controller on another node answers.

    `since` maps the time of the loss to the time from which to count (both Unix times).
    """
    cluster.move_controller(LOST)
    with cluster.frozen(LOST):
        began = time.time()
        eventually("a controller on another node answers", lambda: answers(cluster), 180)
        took = time.time() - since(began)
    eventually("the lost controller stops", lambda: cluster.serves_on(LEFT), 180)
    return took


def answers(cluster: Cluster) -> bool:
    """Return whether a controller on the remaining node is ready."""
    pods = cluster.pods("controller")
    return any(is_ready(pod) and pod["spec"]["nodeName"] == LEFT for pod in pods)


def noticed(cluster: Cluster) -> float:
    """Return the Unix time when Kubernetes noticed the loss, in whole seconds."""
    (node,) = (one for one in cluster.objects("nodes") if one["metadata"]["name"] == LOST)
    (ready,) = (one for one in node["status"]["conditions"] if one["type"] == "Ready")
    return datetime.datetime.fromisoformat(ready["lastTransitionTime"]).timestamp()
