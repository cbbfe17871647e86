"""Carry out plans. Try each action once. Skip an action if the state that requires the action has
changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agents import labels, objects
from agents.drains import START, is_own
from agents.kubernetes import Api, KubernetesError, Object
from agents.ondemand.actions import (
    Action,
    Asleep,
    Create,
    Delete,
    GiveUp,
    Hold,
    Lose,
    Release,
    Retry,
    Sleep,
    Started,
    Wake,
)
from agents.ondemand.observed import BROKEN, Template
from agents.ondemand.plan import OUT, REASON_LENGTH, TRIES, is_slurms_own, may_rest
from agents.slurm import Client, Fault, Node, SlurmError

_AT_ONCE = 8
"""Maximum number of requests to Kubernetes at the same time."""
_QUOTA = frozenset({403, 422})
"""HTTP statuses with which Kubernetes answers if a quota or an admission policy refuses a pod."""
_PASSING = ("failed to configure", "not yet ready", "cannot create resource")
"""Texts in temporary refusals, by an API server that has not read all policies and roles yet.

After its start, and after a deploy that creates policies or roles, the API server needs seconds to
read them. Source: k8s.io/apiserver 0.34, pkg/admission/plugin/policy and
pkg/endpoints/handlers/responsewriters.
"""


class OvertakenError(Exception):
    """The state that requires an action has changed."""


@dataclass(frozen=True)
class Carried:
    """Results of the actions of a plan."""

    done: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()
    """A line for each action that was not carried out."""


class Carrier:
    """Carries out plans. Methods raise `SlurmError` and `KubernetesError`."""

    def __init__(self, slurm: Client, api: Api, namespace: str) -> None:
        self._slurm = slurm
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def carry(self, actions: Sequence[Action], templates: Mapping[str, Template]) -> Carried:
        """Carry out all actions. Stop at an error that concerns more than one node."""
        pods = [action for action in actions if isinstance(action, Create | Delete)]
        errors = self._change_pods(pods, templates)
        done: list[Action] = []
        notes: list[str] = []
        others: list[Action] = []
        for made, error in zip(pods, errors, strict=True):
            if error is None:
                done.append(made)
                continue
            if not error.is_overtaken:
                notes.append(
                    f"cannot carry out '{made}': Kubernetes: {error.said}; the agent tries again"
                )
            if isinstance(made, Create):
                others += self._given_up(made, error)
        others += [action for action in actions if not isinstance(action, Create | Delete)]
        for action in others:
            note = self._try(action)
            if note:
                notes.append(note)
            else:
                done.append(action)
        return Carried(tuple(done), tuple(notes))

    def _given_up(self, made: Create, error: KubernetesError) -> Iterator[GiveUp]:
        """Give up a start if Kubernetes will never accept the pod, so that no job waits in vain."""
        reason = ""
        if _is_lasting(error):
            reason = f"{START}quota: {error.said}"[:REASON_LENGTH]
        elif "already exists" in error.said and self._is_foreign(made.node):
            reason = f"{START}{BROKEN}: another pod has the name {made.node}; delete that pod"
        if reason:
            yield GiveUp(made.node, reason, made.tries + 1)

    def _is_foreign(self, name: str) -> bool:
        """Return whether a pod with this name exists that is not a node on demand.

        The method lists pods, because the agent has no permission to get a single one.
        """
        found = self._api.items(self._pods, objects.Pod, fieldSelector=f"metadata.name={name}")
        return any(labels.ON_DEMAND not in pod["metadata"].get("labels", {}) for pod in found)

    def _try(self, action: Action) -> str:
        try:
            self._change_node(action)
        except OvertakenError as error:
            return (
                f"did not carry out '{action}': {error}; no action needed: the agent decides again "
                "in its next check"
            )
        except SlurmError as error:
            if error.fault is not Fault.SLURM:
                raise
            return f"cannot carry out '{action}': {error}; the agent tries again"
        return ""

    # --- Pods -------------------------------------------------------------------------------------

    def _change_pods(
        self, actions: Sequence[Create | Delete], templates: Mapping[str, Template]
    ) -> list[KubernetesError | None]:
        """Return one result for each action: the error with which Kubernetes answered, or None."""
        if not actions:
            return []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda one: self._try_pod(one, templates), actions))

    def _try_pod(
        self, action: Create | Delete, templates: Mapping[str, Template]
    ) -> KubernetesError | None:
        try:
            self._change_pod(action, templates)
        except KubernetesError as error:
            if error.status is None:
                raise
            return error
        return None

    def _change_pod(self, action: Create | Delete, templates: Mapping[str, Template]) -> None:
        match action:
            case Create():
                body = pod(action.node, templates[action.nodeset])
                self._api.ask("POST", self._pods, body)
            case Delete():
                body = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": action.uid},
                }
                self._api.ask("DELETE", f"{self._pods}/{action.node}", body)

    # --- Records ----------------------------------------------------------------------------------

    # Some changes do harm if the node's state is no longer the one in the plan. Read the record
    # again just before such a change: Slurm has no conditional update, and a job or a person may
    # have changed the record.

    def _change_node(self, action: Action) -> None:
        match action:
            case Wake(node):
                self._slurm.power(node, "POWER_UP")
            case Sleep(node):
                self._slurm.power(node, "POWER_DOWN")
            case Lose(node):
                self._slurm.power(node, "POWER_DOWN", "POWERED_DOWN")
            case Asleep(node):
                self._require(node, lambda it: "POWERING_DOWN" in it.state and may_rest(it))
                self._slurm.resume(node)
            case Retry(node, reason):
                self._require(node, lambda it: "POWERED_DOWN" in it.state and it.reason == reason)
                self._slurm.resume(node)
            case Release(node, reason):
                self._require(
                    node, lambda it: "POWERING_DOWN" not in it.state and it.reason == reason
                )
                self._slurm.resume(node)
            case GiveUp(node, reason, tries):
                self._give_up(node, reason, tries)
            case Hold(node, reason):
                self._require(node, _can_be_held)
                self._slurm.drain(node, reason)
            case Started(node):
                self._forget(node)

    def _give_up(self, node: str, reason: str, tries: int) -> None:
        record = self._require(
            node,
            lambda it: (
                bool(it.state & {"POWERING_UP", "DOWN"})
                and (not it.state & OUT or is_own(it.reason) or is_slurms_own(it))
            ),
        )
        # Do not replace a comment that a person wrote.
        if tries and (not record.comment or record.comment.startswith(TRIES)):
            self._slurm.annotate(node, comment=f"{TRIES}{tries}")
        self._slurm.down(node, reason)

    def _forget(self, node: str) -> None:
        record = self._slurm.node(node)
        if "DRAIN" in record.state and record.reason.startswith(START):
            self._slurm.resume(node)
        if record.comment.startswith(TRIES):
            self._slurm.annotate(node, comment="")

    def save(self, node: str) -> None:
        """Make slurmctld save the state of its nodes. slurmctld does so after an update, but not
        after a node has started.

        The request sets the node's comment to its present value.
        """
        self._slurm.annotate(node, comment=self._slurm.node(node).comment)

    def _require(self, node: str, holds: Callable[[Node], bool]) -> Node:
        """Return the record of a node. Raises OvertakenError if the record does not meet the
        condition `holds`."""
        record = self._slurm.node(node)
        if not holds(record):
            raise OvertakenError(f"Slurm now shows the node's state '{_shown(record)}'")
        return record


def _is_lasting(refusal: KubernetesError) -> bool:
    return refusal.status in _QUOTA and not any(text in refusal.said for text in _PASSING)


def _can_be_held(record: Node) -> bool:
    return "POWERED_DOWN" in record.state and not record.state & {*OUT, "ALLOCATED", "MIXED"}


def _shown(record: Node) -> str:
    return "+".join(sorted(record.state)) + (f": {record.reason}" if record.reason else "")


def pod(node: str, template: Template) -> Object:
    """Return the pod of a node.

    The PodTemplate of the nodeset owns the pod, so Kubernetes deletes the pod with the nodeset.
    """
    meta = template.content.get("metadata", {})
    owner = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "name": template.nodeset,
        "uid": template.uid,
        # Tools such as `kubectl drain` refuse to evict a pod without a controller.
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta,
            "name": node,
            "labels": {**meta.get("labels", {}), labels.POD: node},
            "annotations": {**meta.get("annotations", {}), labels.TEMPLATE: template.digest},
            "ownerReferences": [owner],
        },
        "spec": {**template.content["spec"], "hostname": node},
    }
