"""Carry out a plan. Try each action once. Skip an action if the state that requires the action has
changed."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agents import labels
from agents.drains import is_own
from agents.kubernetes import MERGE, STRATEGIC, Api, KubernetesError, Object
from agents.reconciler.actions import (
    Action,
    Drain,
    Forget,
    Free,
    Lift,
    Mark,
    Reboot,
    Renew,
    Replace,
    Requeue,
    Restart,
    Schedule,
    Tell,
    Unmark,
    Withdraw,
)
from agents.reconciler.judge import DRAINED
from agents.reconciler.memory import Climb, Key, Memory, MemoryUnknownError, dumps, loads
from agents.reconciler.observed import Machine
from agents.reconciler.plan import Plan
from agents.reconciler.roll import may_renew
from agents.slurm import Client, Fault, Node, SlurmError

EVENT_LENGTH = 1024
"""Maximum length of an event's message in characters (k8s.io/api/core/v1)."""
STEPS = (Drain, Lift, Renew, Restart, Reboot, Replace)
"""Actions that the metrics count: they drain a node, update or repair it, or return it to
service."""
HOOK_TIMEOUT = 60
"""Time limit in seconds for the command that replaces a machine."""
ENTRY = "memory"
"""Key of the memory in the ConfigMap."""

Hook = Callable[[list[str], Mapping[str, str]], None]


class OvertakenError(Exception):
    """The state that requires an action has changed."""


@dataclass(frozen=True)
class Kept:
    """Memory as read from its ConfigMap, with the ConfigMap's `resourceVersion`."""

    memory: Memory
    version: str
    text: str


@dataclass(frozen=True)
class Carried:
    """Result of a plan."""

    memory: Memory
    """Memory after the plan."""
    notes: tuple[str, ...]
    """One line for each action that was not carried out, with the reason."""
    done: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Place:
    """Names of the Kubernetes objects that the reconciler uses."""

    namespace: str
    memory: str
    """Name of the ConfigMap with the reconciler's memory."""
    owner: Mapping[str, str]
    """Object to which events refer: `kind`, `name`, `apiVersion`."""
    topology: str = ""
    """Name of the ConfigMap with topology.conf."""
    budget: str = ""
    """Name of the PodDisruptionBudget for nodes with jobs."""


class Carrier:
    """Carries out plans. Methods raise `SlurmError`, `KubernetesError`, `MemoryUnknownError`."""

    def __init__(self, slurm: Client, api: Api, place: Place, hook: Hook | None = None) -> None:
        self._slurm = slurm
        self._api = api
        self._place = place
        self._hook = hook or run_hook
        self.steps: Counter[tuple[str, str]] = Counter()
        """Number of steps that were carried out, by node and step. Includes the steps of a plan
        that later stopped at an error."""

    # --- Memory -------------------------------------------------------------------------------

    def recall(self) -> Kept:
        found = self._api.ask("GET", self._memory_path)
        text = (found.get("data") or {}).get(ENTRY, "")
        try:
            version = found["metadata"]["resourceVersion"]
        except KeyError as error:
            raise MemoryUnknownError(
                f"GET {self._memory_path}: the answer has no {error}, so it is not from the"
                " Kubernetes API; check what answers at the API's address"
            ) from error
        return Kept(loads(text), version, text)

    def remember(self, kept: Kept, memory: Memory) -> Kept:
        """Write the memory if it has changed.

        Raises KubernetesError if another reconciler has written the memory since `kept` was read.
        Then only the other reconciler continues.
        """
        text = dumps(memory)
        if text == kept.text:
            return kept
        body = {"metadata": {"resourceVersion": kept.version}, "data": {ENTRY: text}}
        answer = self._api.ask("PATCH", self._memory_path, body, kind=MERGE)
        return Kept(memory, answer["metadata"]["resourceVersion"], text)

    @property
    def _memory_path(self) -> str:
        return f"/api/v1/namespaces/{self._place.namespace}/configmaps/{self._place.memory}"

    # --- Actions ------------------------------------------------------------------------------

    def carry(
        self, made: Plan, kept: Kept, machines: Mapping[str, Machine], command: tuple[str, ...]
    ) -> Carried:
        """Carry out all actions.

        Skip an action that Slurm or Kubernetes refuses, or that is no longer required. Stop at any
        other error.
        """
        kept = self.remember(kept, made.memory)
        climbs = dict(made.memory)
        notes, done = [], []
        try:
            for action in made.actions:
                try:
                    self._change(action, machines, command)
                except OvertakenError as error:
                    notes.append(_skipped(action, error))
                except SlurmError as error:
                    if error.fault is not Fault.SLURM:
                        raise
                    notes.append(_refused(action, error))
                except KubernetesError as error:
                    if not (error.is_overtaken or error.is_refused):
                        raise
                    notes.append(_refused(action, error))
                else:
                    done.append(action)
                    _mark_done(climbs, action)
                    self._count(action)
        finally:
            self.remember(kept, climbs)
        return Carried(climbs, tuple(notes), tuple(done))

    def _count(self, action: Action) -> None:
        if isinstance(action, STEPS):
            node = action.node if isinstance(action, Drain | Lift | Renew) else action.key[0]
            self.steps[node, type(action).__name__.lower()] += 1

    def _change(
        self, action: Action, machines: Mapping[str, Machine], command: tuple[str, ...]
    ) -> None:
        match action:
            case Forget() | Drain() | Lift() | Requeue():
                self._change_record(action)
            case Renew() | Schedule() | Free() | Restart():
                self._change_pod(action)
            case Tell():
                self.event("Warning", "PersonNeeded", action.message)
            case _:
                self._change_machine(action, machines, command)

    def _change_record(self, action: Forget | Drain | Lift | Requeue) -> None:
        match action:
            case Forget():
                self._slurm.forget(action.node)
            case Drain():
                self._drain(action)
            case Lift():
                self._lift(action)
            case Requeue():
                self._requeue(action)

    def _change_pod(self, action: Renew | Schedule | Free | Restart) -> None:
        match action:
            case Renew():
                self._renew(action)
            case Schedule():
                self._schedule(action)
            case Free():
                self._delete_pod(action.node, action.uid)
            case Restart():
                self._delete_pod(action.key[0], action.uid)

    def _change_machine(
        self,
        action: Mark | Unmark | Withdraw | Reboot | Replace,
        machines: Mapping[str, Machine],
        command: tuple[str, ...],
    ) -> None:
        match action:
            case Mark():
                self._mark(machines[action.machine], action.text)
            case Unmark():
                self._unmark(machines[action.machine])
            case Withdraw():
                self._annotate(action.machine, None)
            case Reboot():
                self._annotate(action.machine, f"{action.boot} {action.at}")
            case Replace():
                self._replace(action, command)

    # Read the record again just before each change: Slurm has no conditional update, and a person
    # may have changed the record.

    def _drain(self, action: Drain) -> None:
        record = self._slurm.node(action.node)
        if record.reason or record.state & DRAINED:
            raise OvertakenError(f"the node is already drained, with the reason '{record.reason}'")
        self._slurm.drain(action.node, action.reason)

    def _lift(self, action: Lift) -> None:
        record = self._slurm.node(action.node)
        if (record.reason, record.reason_time) != (action.reason, action.since):
            raise OvertakenError(f"the reason of the drain has changed to '{record.reason}'")
        if "DOWN" in record.state:
            raise OvertakenError("the node's state is DOWN, so the drain stays")
        self._slurm.resume(action.node)

    def _requeue(self, action: Requeue) -> None:
        record = self._slurm.node(action.node)
        if not is_own(record.reason) or "NOT_RESPONDING" not in record.state:
            raise OvertakenError(_changed(record))
        self._slurm.down(action.node, record.reason)

    def _renew(self, action: Renew) -> None:
        if action.has_record:
            record = self._slurm.node(action.node)
            if not may_renew(record):
                raise OvertakenError(_changed(record))
        self._delete_pod(action.node, action.uid)

    def _delete_pod(self, name: str, uid: str) -> None:
        path = f"/api/v1/namespaces/{self._place.namespace}/pods/{name}"
        self._api.ask("DELETE", path, _only(uid))

    def _schedule(self, action: Schedule) -> None:
        path = f"/api/v1/namespaces/{self._place.namespace}/pods/{action.node}"
        chosen = {labels.HOSTNAME: action.hostname} if action.hostname else {}
        # Remove only this gate, because other controllers, such as Kueue, may have added gates.
        gate = {"name": labels.MACHINE, "$patch": "delete"}
        body = {
            "metadata": {"uid": action.uid},
            "spec": {"nodeSelector": chosen, "schedulingGates": [gate]},
        }
        self._api.ask("PATCH", path, body, kind=STRATEGIC)

    # --- Machines -----------------------------------------------------------------------------

    def _mark(self, machine: Machine, text: str) -> None:
        now = _stamp()
        condition = {
            "type": labels.CONDITION_UNHEALTHY,
            "status": "True",
            "reason": "SlurmDrain",
            "message": text[:EVENT_LENGTH],
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        self._condition(machine.name, condition)
        if not machine.is_tainted:
            self._taint(
                machine, [*_others(machine), {"key": labels.UNHEALTHY, "effect": "NoSchedule"}]
            )

    def _unmark(self, machine: Machine) -> None:
        # Remove the taint before the condition. If the removal of the taint fails, the condition
        # remains. The next pass sees the condition and tries again.
        if machine.is_tainted:
            self._taint(machine, _others(machine))
        if machine.mark:
            self._condition(machine.name, {"type": labels.CONDITION_UNHEALTHY, "$patch": "delete"})

    def _condition(self, machine: str, condition: Object) -> None:
        body = {"status": {"conditions": [condition]}}
        self._api.ask("PATCH", f"/api/v1/nodes/{machine}/status", body, kind=STRATEGIC)

    def _taint(self, machine: Machine, taints: list[Object]) -> None:
        # This patch replaces the whole list of taints, but must not overwrite changes by others.
        # Setting the condition may have changed the Node's version, so read the Node again, and
        # compare its taints with those of this pass.
        found = self._api.ask("GET", f"/api/v1/nodes/{machine.name}")
        if tuple(found["spec"].get("taints") or ()) != machine.taints:
            raise OvertakenError("another program has changed the taints of the machine")
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        body = {"metadata": version, "spec": {"taints": taints}}
        self._api.ask("PATCH", f"/api/v1/nodes/{machine.name}", body, kind=MERGE)

    def _annotate(self, machine: str, value: str | None) -> None:
        body = {"metadata": {"annotations": {labels.REBOOT: value}}}
        self._api.ask("PATCH", f"/api/v1/nodes/{machine}", body, kind=MERGE)

    def _replace(self, action: Replace, command: tuple[str, ...]) -> None:
        if not command:
            self._api.ask("DELETE", f"/api/v1/nodes/{action.machine}", _only(action.uid))
            return
        environment = {
            "MACHINE": action.machine,
            "MACHINE_UID": action.uid,
            "PROVIDER_ID": action.provider,
            "SLURM_NODE": action.key[0],
            "CAUSE": action.key[1],
        }
        try:
            self._hook(list(command), environment)
        except (OSError, subprocess.SubprocessError) as error:
            raise OvertakenError(
                f"'reconciler.replace': {error}; correct the command in this setting"
            ) from error

    # --- Reports ------------------------------------------------------------------------------

    def event(self, kind: str, reason: str, message: str) -> None:
        """Create an event about the reconciler's Deployment or Job. `kind`: Normal or Warning."""
        now = _stamp()
        owner = {**self._place.owner, "namespace": self._place.namespace}
        body = {
            "metadata": {"name": f"reconciler.{time.time_ns():x}"},
            "involvedObject": owner,
            "type": kind,
            "reason": reason,
            "message": message[:EVENT_LENGTH],
            "source": {"component": "slurmstack-reconciler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._api.ask("POST", f"/api/v1/namespaces/{self._place.namespace}/events", body)

    def annotate_job(self, report: str) -> None:
        """Write the report to this pod's Job, where the deploy reads it."""
        path = f"/apis/batch/v1/namespaces/{self._place.namespace}/jobs/{self._place.owner['name']}"
        body = {"metadata": {"annotations": {labels.REPORT: report}}}
        self._api.ask("PATCH", path, body, kind=MERGE)


def run_hook(command: list[str], environment: Mapping[str, str]) -> None:
    """Run the command that replaces a machine.

    Raises `OSError` and `subprocess.SubprocessError`.
    """
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(command, env={**path, **environment}, check=True, timeout=HOOK_TIMEOUT)


def _skipped(action: Action, error: OvertakenError) -> str:
    return f"did not carry out '{action}': {error}; no action needed: the next pass decides again"


def _refused(action: Action, error: SlurmError | KubernetesError) -> str:
    return f"cannot carry out '{action}': {error}; the next pass tries again"


def _changed(record: Node) -> str:
    state = "+".join(sorted(record.state))
    return f"Slurm now shows the node's state '{state}' and the reason '{record.reason}'"


def _mark_done(climbs: dict[Key, Climb], action: Action) -> None:
    if isinstance(action, Restart | Reboot | Replace | Tell):
        climbs[action.key] = replace(climbs[action.key], done=True)


def _only(uid: str) -> Object:
    """Return the body of a DELETE that applies only to the object with this UID."""
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}


def _others(machine: Machine) -> list[Object]:
    return [dict(taint) for taint in machine.taints if taint["key"] != labels.UNHEALTHY]


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
