"""Actions send the right requests. The reconciler skips an action if the state has changed.

The reconciler records the progress of its repairs in a ConfigMap, its memory.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents import labels
from agents.kubernetes import Api, KubernetesError
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
from agents.reconciler.carry import Carrier, Kept, Place, run_hook
from agents.reconciler.memory import Climb, Memory, MemoryUnknownError, dumps, loads
from agents.reconciler.observed import Condition, Machine
from agents.reconciler.plan import Plan
from agents.slurm import Client, SlurmError
from tests.support.slurmnodes import NOW, moment
from tests.unit.agents.reconciler.things import READY, machine

Object = dict[str, Any]
KEY = ("cpu-1", "gpu-xid")
MEMORY = "/api/v1/namespaces/slurm/configmaps/memory"
NODE = "/api/v1/nodes/machine-1"
OURS = "slurmstack:check:disk: full"
RECORDED = Path(__file__).parents[1] / "slurm/data/v0.0.42.json"
RECORD: Object = json.loads(RECORDED.read_text())["nodes"]["nodes"][0]


class World:
    """Slurm and Kubernetes over HTTP, with recorded requests and configurable answers."""

    def __init__(self, **record: Any) -> None:
        self.record = record
        self.refused: dict[str, Any] = {}
        """Response or exception by method and path."""
        self.changes: list[tuple[str, str, Any]] = []
        """Requests other than GET."""
        self.remembered: list[str] = []
        self.taints: list[Object] = []

    def slurm(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.partition("/v0.0.42/")[2]
        if request.method != "GET":
            self._note(request, path)
        self._refuse(f"{request.method} {path}")
        if path == "ping/":
            return httpx.Response(200, json={"pings": []})
        since = {"set": True, "infinite": False, "number": self.record.get("since", 0)}
        record = {**RECORD, "state": ["IDLE"], "reason_changed_at": since, **self.record}
        return httpx.Response(200, json={"nodes": [record], "errors": []})

    def kubernetes(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == MEMORY and request.method == "PATCH":
            self.remembered.append(json.loads(request.content)["data"]["memory"])
        elif request.method != "GET":
            self._note(request, path)
        if (answer := self._refuse(f"{request.method} {path}")) is not None:
            return answer
        found = {"metadata": {"resourceVersion": "9"}, "spec": {"taints": self.taints}}
        return httpx.Response(200, json=found)

    def _note(self, request: httpx.Request, path: str) -> None:
        body = json.loads(request.content) if request.content else None
        self.changes.append((request.method, path, body))

    def _refuse(self, asked: str) -> httpx.Response | None:
        answer = self.refused.get(asked)
        if isinstance(answer, Exception):
            raise answer
        return answer


def carrier(world: World, hook: Any = None) -> Carrier:
    slurm = Client(
        "http://rest", lambda: "t", transport=httpx.MockTransport(world.slurm), sleep=lambda _: None
    )
    api = Api("http://k", lambda: "t", transport=httpx.MockTransport(world.kubernetes))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "after"}
    return Carrier(slurm, api, Place("slurm", "memory", owner), hook)


def carry(
    world: World,
    *actions: Action,
    memory: Memory | None = None,
    on: Machine | None = None,
    command: tuple[str, ...] = (),
    hook: Any = None,
) -> tuple[str, ...]:
    made = Plan(actions, memory or {}, (), 3, 3)
    kept = Kept({}, "7", "")
    machines = {"machine-1": on or machine("machine-1")}
    return carrier(world, hook).carry(made, kept, machines, command).notes


# --- Slurm ---------------------------------------------------------------------------------------


def test_node_that_has_no_reason_yet_is_drained() -> None:
    world = World()

    assert carry(world, Drain("cpu-1", "slurmstack:kubernetes:cordoned: m")) == ()
    body = {"state": ["DRAIN"], "reason": "slurmstack:kubernetes:cordoned: m"}
    assert world.changes == [("POST", "node/cpu-1", body)]


@pytest.mark.parametrize(
    "record",
    [
        {"reason": "broken-fan", "state": ["IDLE", "DRAIN"]},
        {"reason": "", "state": ["IDLE", "DRAIN"]},
        {"reason": "a note of an operator", "state": ["IDLE"]},
        {"reason": OURS, "state": ["IDLE", "DRAIN"]},
    ],
)
def test_reason_that_others_set_meanwhile_is_not_overwritten(record: Object) -> None:
    world = World(**record)

    (note,) = carry(world, Drain("cpu-1", "slurmstack:kubernetes:cordoned: m"))
    assert note.startswith("did not carry out 'drain node cpu-1: ")
    assert world.changes == []


LIFT = Lift("cpu-1", OURS, moment(NOW))


def test_unchanged_drain_is_lifted() -> None:
    world = World(reason=OURS, state=["IDLE", "DRAIN"], since=NOW)

    assert carry(world, LIFT) == ()
    assert world.changes == [("POST", "node/cpu-1", {"state": ["RESUME"]})]


@pytest.mark.parametrize(
    "record",
    [
        {"reason": "broken-fan", "state": ["IDLE", "DRAIN"], "since": NOW},
        {"reason": OURS, "state": ["IDLE", "DRAIN"], "since": NOW + 1},
        {"reason": OURS, "state": ["DOWN", "DRAIN"], "since": NOW},
        {"reason": "", "state": ["IDLE"], "since": 0},
    ],
)
def test_changed_drain_is_not_lifted(record: Object) -> None:
    world = World(**record)

    assert len(carry(world, LIFT)) == 1
    assert world.changes == []


def test_lost_node_becomes_down_and_keeps_its_reason() -> None:
    world = World(reason=OURS, state=["MIXED", "DRAIN", "NOT_RESPONDING"])

    assert carry(world, Requeue("cpu-1", "as it was")) == ()
    assert world.changes == [("POST", "node/cpu-1", {"state": ["DOWN"], "reason": OURS})]


@pytest.mark.parametrize(
    "record",
    [
        {"reason": "broken-fan", "state": ["MIXED", "DRAIN", "NOT_RESPONDING"]},
        {"reason": OURS, "state": ["MIXED", "DRAIN"]},
    ],
)
def test_only_lost_nodes_that_slurmstack_drained_become_down(record: Object) -> None:
    world = World(**record)

    assert len(carry(world, Requeue("cpu-1", OURS))) == 1
    assert world.changes == []


def test_record_of_a_removed_node_is_deleted() -> None:
    world = World()

    carry(world, Forget("cpu-7"))
    assert world.changes == [("DELETE", "node/cpu-7", None)]


# --- Kubernetes ----------------------------------------------------------------------------------


def test_pod_is_deleted_only_if_its_uid_matches() -> None:
    world = World()

    carry(world, Restart(KEY, "u1"), memory={KEY: Climb(1, NOW)})
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}}
    assert world.changes == [("DELETE", "/api/v1/namespaces/slurm/pods/cpu-1", options)]


@pytest.mark.parametrize(
    ("action", "chosen"),
    [
        (Schedule("cpu-1", "u1", "machine-1", "host-1"), {labels.HOSTNAME: "host-1"}),
        (Schedule("cpu-1", "u1"), {}),
    ],
)
def test_gated_pod_starts_on_its_machine_or_anywhere(action: Schedule, chosen: Object) -> None:
    world = World()
    carry(world, action)

    body = {
        "metadata": {"uid": "u1"},
        "spec": {
            "nodeSelector": chosen,
            # The patch removes one gate, and keeps the gates of other controllers.
            "schedulingGates": [{"name": labels.MACHINE, "$patch": "delete"}],
        },
    }
    assert world.changes == [("PATCH", "/api/v1/namespaces/slurm/pods/cpu-1", body)]


def test_pod_of_a_lost_machine_is_deleted() -> None:
    world = World()
    carry(world, Free("cpu-1", "u1", "machine-9"))

    ((method, path, body),) = world.changes
    assert (method, path) == ("DELETE", "/api/v1/namespaces/slurm/pods/cpu-1")
    assert body["preconditions"] == {"uid": "u1"}


def test_annotation_requests_a_reboot_and_its_removal_withdraws_it() -> None:
    world = World()

    carry(world, Reboot(KEY, "machine-1", "b1", NOW), memory={KEY: Climb(2, NOW)})
    carry(world, Withdraw("machine-1"))
    assert world.changes == [
        ("PATCH", NODE, {"metadata": {"annotations": {labels.REBOOT: f"b1 {NOW}"}}}),
        ("PATCH", NODE, {"metadata": {"annotations": {labels.REBOOT: None}}}),
    ]


REPLACE = Replace(KEY, "machine-1", "u3", "cloud://1")


def test_machine_is_replaced_by_deleting_its_kubernetes_node() -> None:
    world = World()

    carry(world, REPLACE, memory={KEY: Climb(3, NOW)})
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u3"}}
    assert world.changes == [("DELETE", NODE, options)]


def test_configured_command_replaces_the_machine() -> None:
    called: list[tuple[list[str], Mapping[str, str]]] = []
    world = World()

    carry(
        *(world, REPLACE),
        memory={KEY: Climb(3, NOW)},
        command=("replace", "--now"),
        hook=lambda *call: called.append(call),
    )
    ((command, environment),) = called
    assert command == ["replace", "--now"]
    assert environment["PROVIDER_ID"] == "cloud://1"
    assert environment["MACHINE"] == "machine-1"
    assert world.changes == []


def test_failed_command_is_reported_as_not_done() -> None:
    world = World()

    (note,) = carry(world, REPLACE, memory={KEY: Climb(3, NOW)}, command=("false",))
    assert "reconciler.replace" in note
    assert not loads(world.remembered[-1])[KEY].done


def test_failed_hook_raises_an_error() -> None:
    run_hook(["sh", "-c", 'test "$MACHINE" = m'], {"MACHINE": "m"})
    with pytest.raises(subprocess.CalledProcessError):
        run_hook(["sh", "-c", "exit 3"], {})


TAINT = {"key": labels.UNHEALTHY, "effect": "NoSchedule"}
OTHER = {"key": "gpu", "effect": "NoSchedule"}


def test_mark_is_added_beside_existing_conditions_and_taints() -> None:
    world = World()
    world.taints = [OTHER]

    assert carry(world, Mark("machine-1", "Xid"), on=machine("machine-1", taints=(OTHER,))) == ()
    (_, status, condition), (_, node, taints) = world.changes
    (made,) = condition["status"]["conditions"]
    assert (status, node) == (f"{NODE}/status", NODE)
    assert (made["type"], made["status"], made["message"]) == (
        labels.CONDITION_UNHEALTHY,
        "True",
        "Xid",
    )
    assert taints["spec"]["taints"] == [OTHER, TAINT]
    assert taints["metadata"] == {"resourceVersion": "9"}, "the patch fails if the Node has changed"


def test_unmarking_a_machine_removes_only_our_condition_and_taint() -> None:
    conditions = {**READY, labels.CONDITION_UNHEALTHY: Condition("True")}
    world = World()
    world.taints = [OTHER, TAINT]

    carry(
        world,
        Unmark("machine-1"),
        on=machine("machine-1", taints=(OTHER, TAINT), conditions=conditions),
    )
    (_, _, taints), (_, _, condition) = world.changes
    assert taints["spec"]["taints"] == [OTHER]
    assert condition == {
        "status": {"conditions": [{"type": labels.CONDITION_UNHEALTHY, "$patch": "delete"}]}
    }


def test_taints_that_changed_meanwhile_are_left_for_the_next_pass() -> None:
    world = World()
    world.taints = [OTHER]

    (note,) = carry(world, Mark("machine-1", "Xid"))
    assert "another program has changed the taints" in note
    assert [path for _, path, _ in world.changes] == [f"{NODE}/status"]


def test_event_reports_that_a_person_is_needed() -> None:
    world = World()

    carry(world, Tell(KEY, "Xid 79"), memory={KEY: Climb(4, NOW)})
    ((_, path, event),) = world.changes
    assert path == "/api/v1/namespaces/slurm/events"
    assert (event["type"], event["reason"]) == ("Warning", "PersonNeeded")
    assert event["message"] == (
        "a person must repair node cpu-1, because no repair step remains: gpu-xid: Xid 79"
    )
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "after", "namespace": "slurm"}
    assert event["involvedObject"] == about


def test_report_is_written_to_an_annotation_of_the_job() -> None:
    world = World()

    carrier(world).annotate_job("all is well")
    annotation = {"metadata": {"annotations": {"slurmstack.dev/report": "all is well"}}}
    assert world.changes == [("PATCH", "/apis/batch/v1/namespaces/slurm/jobs/after", annotation)]


# --- Memory and failures -------------------------------------------------------------------------

BEGUN: Memory = {KEY: Climb(1, NOW, target="u1")}


def test_step_is_recorded_before_and_after_it_is_carried_out() -> None:
    world = World()

    carry(world, Restart(KEY, "u1"), memory=BEGUN)
    before, after = map(loads, world.remembered)
    assert (before[KEY].done, after[KEY].done) == (False, True)


def test_conflicting_write_to_the_memory_stops_all_actions() -> None:
    world = World()
    world.refused[f"PATCH {MEMORY}"] = httpx.Response(409, json={"message": "modified"})

    with pytest.raises(KubernetesError, match="409"):
        carry(world, Restart(KEY, "u1"), Forget("cpu-7"), memory=BEGUN)
    assert world.changes == []


def test_unchanged_memory_is_not_written() -> None:
    world = World()

    carry(world, Forget("cpu-7"))
    assert world.remembered == []


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "it is another"),
        (409, "it is another"),
        (422, "it is another"),
        (403, 'admission webhook "site.example" denied the request: no'),
        (500, 'Internal error occurred: failed calling webhook "site.example"'),
    ],
)
def test_refused_action_is_reported_and_others_continue(status: int, message: str) -> None:
    world = World()
    path = "/api/v1/namespaces/slurm/pods/cpu-1"
    world.refused[f"DELETE {path}"] = httpx.Response(status, json={"message": message})

    (note,) = carry(world, Restart(KEY, "u1"), Withdraw("machine-1"), memory=BEGUN)
    assert note.endswith(f"{message}; the next pass tries again")
    assert [path for _, path, _ in world.changes][-1] == NODE
    assert not loads(world.remembered[-1])[KEY].done


def test_unavailable_slurm_stops_all_later_actions() -> None:
    world = World()
    world.refused["GET node/cpu-1"] = httpx.ConnectError("gone")

    with pytest.raises(SlurmError, match="unreachable"):
        carry(world, Drain("cpu-1", OURS), Withdraw("machine-1"))
    assert world.changes == []


def test_missing_kubernetes_permission_stops_all_later_actions() -> None:
    world = World()
    world.refused[f"PATCH {NODE}"] = httpx.Response(403, json={"message": "forbidden"})

    with pytest.raises(KubernetesError, match="403"):
        carry(world, Withdraw("machine-1"), Forget("cpu-7"))
    assert [method for method, _, _ in world.changes] == ["PATCH"]


def test_only_steps_that_were_carried_out_are_counted() -> None:
    world = World(state=["IDLE", "DRAIN"], reason="another's")
    world.refused[f"DELETE {NODE}"] = httpx.Response(403, json={"message": "forbidden"})
    actions = (
        *(Restart(KEY, "u1"), Restart(KEY, "u1"), Reboot(KEY, "machine-1", "b1", NOW)),
        *(Withdraw("machine-1"), Drain("cpu-1", OURS), REPLACE),
    )
    found = carrier(world)

    with pytest.raises(KubernetesError, match="403"):
        found.carry(Plan(actions, BEGUN, (), 3, 3), Kept({}, "7", ""), {}, ())
    assert found.steps == {("cpu-1", "restart"): 2, ("cpu-1", "reboot"): 1}


def test_drain_and_lift_are_counted_as_steps() -> None:
    found = carrier(World())
    found.carry(Plan((Drain("cpu-1", OURS),), {}, (), 3, 3), Kept({}, "7", ""), {}, ())
    assert found.steps == {("cpu-1", "drain"): 1}

    found = carrier(World(reason=OURS, state=["IDLE", "DRAIN"], since=NOW))
    found.carry(Plan((LIFT,), {}, (), 3, 3), Kept({}, "7", ""), {}, ())
    assert found.steps == {("cpu-1", "lift"): 1}


RENEW = Renew("cpu-1", "pod-uid", has_record=True)
DRAINING = ["IDLE", "DRAIN"]


def test_update_deletes_the_pod_of_a_drained_node_without_jobs() -> None:
    world = World(state=DRAINING, alloc_cpus=0, alloc_memory=0)
    found = carrier(world)

    done = found.carry(Plan((RENEW,), {}, (), 3, 3), Kept({}, "7", ""), {}, ())

    assert done.notes == ()
    ((method, path, body),) = world.changes
    assert (method, path) == ("DELETE", "/api/v1/namespaces/slurm/pods/cpu-1")
    assert body["preconditions"] == {"uid": "pod-uid"}
    assert found.steps == {("cpu-1", "renew"): 1}


@pytest.mark.parametrize(
    "record",
    [
        {"state": ["IDLE"], "alloc_cpus": 0, "alloc_memory": 0},
        {"state": DRAINING, "alloc_cpus": 1, "alloc_memory": 0},
        {"state": DRAINING, "alloc_cpus": 0, "alloc_memory": 224},
    ],
    ids=["in service", "running job", "suspended job"],
)
def test_update_keeps_the_pod_if_a_job_runs_or_may_start(record: dict[str, Any]) -> None:
    world = World(**record)

    done = carrier(world).carry(Plan((RENEW,), {}, (), 3, 3), Kept({}, "7", ""), {}, ())

    assert len(done.notes) == 1
    assert world.changes == []


def test_parsed_memory_equals_the_written_memory() -> None:
    memory = {KEY: Climb(2, NOW, True, "b1", NOW + 1), ("cpu-2", "pod"): Climb(0, NOW)}

    assert loads(dumps(memory)) == memory
    assert loads("") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"node": "a"}', '{"node":"a","cause":"b","x":1}'])
def test_invalid_memory_is_an_error(text: str) -> None:
    with pytest.raises(MemoryUnknownError):
        loads(text)
