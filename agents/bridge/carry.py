"""Carry out plans. Try each action once: the next plan decides again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agents import labels
from agents.bridge import jobs
from agents.bridge.actions import (
    Action,
    Bind,
    Cancel,
    Drain,
    Evict,
    Exclude,
    Finish,
    Link,
    OfPod,
    Place,
    Refuse,
    Release,
    Submit,
    Tell,
    Undrain,
    Unlink,
)
from agents.bridge.nodes import Nodes
from agents.bridge.observed import Pod
from agents.bridge.records import Records
from agents.bridge.volumes import SELECTED
from agents.bridge.wanted import Wanted
from agents.kubernetes import MERGE, STRATEGIC, Api, KubernetesError, Object
from agents.slurm import Client, Fault, SlurmError

_EVENT_LENGTH = 1024
"""Maximum length of an event's message in characters (k8s.io/api/core/v1)."""
_PLACED = "PodScheduled"
"""Type of the condition that says whether, and why not, a pod has a machine."""
_ERRORS = (ArithmeticError, KubernetesError, SlurmError, TypeError, ValueError)
"""Errors of an action. The pod of one user must not stop the bridge for all others."""


@dataclass(frozen=True)
class Carried:
    """Results of the actions of a plan."""

    done: tuple[Action, ...] = ()
    failed: tuple[tuple[Action, str], ...] = ()
    """Actions that were refused, each with the error."""
    refused: tuple[str, ...] = ()
    """Gangs whose jobs Slurm has refused."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each action that failed."""
        return tuple(f"cannot {action}: {error}" for action, error in self.failed)


class Carrier:
    """Carries out plans.

    `carry` raises `SlurmError` or `KubernetesError` if a service does not answer.
    """

    def __init__(
        self,
        slurm: Client,
        api: Api,
        namespace: str,
        records: Records,
        nodes: Nodes,
        may_act: Callable[[], bool],
    ) -> None:
        """`namespace` is that of the stack. `may_act` returns whether no other pod acts."""
        self._slurm = slurm
        self._api = api
        self._namespace = namespace
        self._records = records
        self._nodes = nodes
        self._may_act = may_act

    def carry(self, actions: Sequence[Action], wanted: Wanted) -> Carried:
        done: list[Action] = []
        failed: list[tuple[Action, str]] = []
        refused: list[str] = []
        for action in actions:
            if not self._may_act():
                break
            try:
                if self._do(action, wanted):
                    done.append(action)
            except _ERRORS as error:
                text = _failure(error)
                if text:
                    failed.append((action, text))
                if text and isinstance(action, Submit):
                    refused.append(action.gang)
                    self._tell_refusal(action, text)
        return Carried(tuple(done), tuple(failed), tuple(refused))

    def _do(self, action: Action, wanted: Wanted) -> bool:
        """Carry out an action. Return whether all of it was done."""
        match action:
            case Submit(gang, request, members, excluded):
                self._records.submit(
                    jobs.job_request(gang, request, len(members), excluded, wanted)
                )
            case Exclude(job, nodes):
                self._records.exclude(job, nodes)
            case Finish(job, success):
                self._slurm.signal(job, jobs.COMPLETED if success else jobs.FAILED)
            case Cancel(job):
                self._slurm.cancel(job)
            case Drain(node, reason):
                self._slurm.drain(node, reason)
            case Undrain(node):
                self._slurm.undrain(node)
            case Bind(job, places):
                bound = [self._bind(job, pod, machine) for pod, machine in places]
                return all(bound)
            case _:
                self._change_pod(action)
        return True

    def _change_pod(self, action: OfPod) -> None:
        match action:
            case Place(pod, claim, machine):
                self._place(pod, claim, machine)
            case Link(pod, job):
                guarded = [*pod.finalizers, labels.BRIDGE]
                link = {labels.JOB: str(job), labels.BRIDGE: self._namespace}
                self._patch(pod, {"labels": link, "finalizers": guarded})
            case Unlink(pod):
                self._patch(pod, {"labels": {labels.JOB: None, labels.BRIDGE: None}})
            case Release(pod):
                kept = [one for one in pod.finalizers if one != labels.BRIDGE]
                self._patch(pod, {"finalizers": kept})
            case Evict(pod, why):
                self._evict(pod, why)
            case Tell(pod, text):
                self._set_condition(pod, _PLACED, "False", "WaitsForSlurm", text)
            case Refuse(pod, text):
                self._refuse(pod, text)

    def _tell_refusal(self, action: Submit, text: str) -> None:
        for pod in action.members:
            if pod.said != text:
                self._refuse(pod, text)

    def _refuse(self, pod: Pod, text: str) -> None:
        self._set_condition(pod, _PLACED, "False", "RefusedBySlurm", text)
        self._event(pod, "FailedScheduling", text)

    def _bind(self, job: int, pod: Pod, machine: str) -> bool:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": machine},
        }
        path = f"{_path(pod)}/binding"
        return self._nodes.bind(job, pod, machine, lambda: self._api.ask("POST", path, body))

    def _place(self, pod: Pod, claim: str, machine: str) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/persistentvolumeclaims/{claim}"
        body = {"metadata": {"annotations": {SELECTED: machine}}}
        self._api.ask("PATCH", path, body, kind=MERGE)

    def _evict(self, pod: Pod, why: str) -> None:
        # Controllers of Jobs can treat such an end differently from a failure of the program.
        self._set_condition(pod, "DisruptionTarget", "True", "SlurmJobEnded", why)
        self._event(pod, "SlurmJobEnded", why)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
        }
        self._api.ask("DELETE", _path(pod), body)

    def _patch(self, pod: Pod, metadata: Object) -> None:
        own = {"uid": pod.uid, "resourceVersion": pod.version}
        body = {"metadata": {**own, **metadata}}
        self._api.ask("PATCH", _path(pod), body, kind=MERGE)

    def _set_condition(self, pod: Pod, kind: str, status: str, reason: str, text: str) -> None:
        condition = {"type": kind, "status": status, "reason": reason, "message": text}
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._api.ask("PATCH", f"{_path(pod)}/status", body, kind=STRATEGIC)

    def _event(self, pod: Pod, reason: str, text: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name}
        body = {
            "metadata": {"name": f"{pod.name}.{time.time_ns():x}"},
            "involvedObject": {**about, "uid": pod.uid},
            "type": "Warning",
            "reason": reason,
            "message": text[:_EVENT_LENGTH],
            "source": {"component": "slurmstack-bridge"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        self._api.ask("POST", f"/api/v1/namespaces/{pod.namespace}/events", body)


def _failure(error: Exception) -> str:
    """Return what to report about an action, or "" if another change has overtaken it.

    Raises the error if a service does not answer.
    """
    if isinstance(error, KubernetesError):
        if error.status is None:
            raise error
        return "" if error.is_overtaken else str(error)
    if isinstance(error, SlurmError):
        if error.fault is not Fault.SLURM:
            raise error
        return str(error)
    return repr(error)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
