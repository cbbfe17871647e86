"""Fields of Kubernetes' objects that agents read, with their names in the API.

The decoder drops all other fields, because they are most of an answer. An answer must contain all
fields except the fields that are NotRequired.
"""

from datetime import datetime
from typing import Any, Final, NotRequired, TypedDict

STUCK: Final = 120
"""Seconds. Agents treat a pod as stuck if it still exists this long after its deletion deadline."""


class Meta(TypedDict):
    name: str
    uid: str
    labels: NotRequired[dict[str, str]]
    annotations: NotRequired[dict[str, str]]
    resourceVersion: str
    generation: NotRequired[int]
    creationTimestamp: datetime
    deletionTimestamp: NotRequired[datetime]


class Condition(TypedDict):
    type: str
    status: str
    reason: NotRequired[str]
    message: NotRequired[str]
    lastTransitionTime: NotRequired[datetime | None]


# --- Pods ----------------------------------------------------------------------------------------


class Variable(TypedDict):
    name: str
    value: NotRequired[str]


class Container(TypedDict):
    env: NotRequired[list[Variable]]


class Gate(TypedDict):
    name: str


class PodSpec(TypedDict):
    containers: list[Container]
    nodeName: NotRequired[str]
    nodeSelector: NotRequired[dict[str, str]]
    schedulingGates: NotRequired[list[Gate]]


class Waiting(TypedDict):
    reason: NotRequired[str]
    message: NotRequired[str]


class Terminated(TypedDict):
    finishedAt: NotRequired[datetime | None]
    message: NotRequired[str]


class State(TypedDict):
    waiting: NotRequired[Waiting]
    terminated: NotRequired[Terminated]


class ContainerStatus(TypedDict):
    name: str
    ready: NotRequired[bool]
    restartCount: NotRequired[int]
    state: NotRequired[State]
    lastState: NotRequired[State]


class PodStatus(TypedDict):
    phase: NotRequired[str]
    reason: NotRequired[str]
    message: NotRequired[str]
    startTime: NotRequired[datetime]
    conditions: NotRequired[list[Condition]]
    initContainerStatuses: NotRequired[list[ContainerStatus]]
    containerStatuses: NotRequired[list[ContainerStatus]]


class Pod(TypedDict):
    metadata: Meta
    spec: PodSpec
    status: PodStatus


# --- Nodes ---------------------------------------------------------------------------------------


class NodeSpec(TypedDict):
    unschedulable: NotRequired[bool]
    providerID: NotRequired[str]
    taints: NotRequired[list[dict[str, str]]]


class NodeInfo(TypedDict):
    bootID: NotRequired[str]


class NodeStatus(TypedDict):
    nodeInfo: NotRequired[NodeInfo]
    conditions: NotRequired[list[Condition]]


class Node(TypedDict):
    metadata: Meta
    spec: NodeSpec
    status: NodeStatus


# --- Owners of pods ------------------------------------------------------------------------------


class PodTemplate(TypedDict):
    metadata: Meta
    template: dict[str, Any]


class StatefulSetStatus(TypedDict):
    observedGeneration: NotRequired[int]
    updateRevision: NotRequired[str]


class StatefulSet(TypedDict):
    metadata: Meta
    status: StatefulSetStatus
