"""The reconciler reads Kubernetes' objects correctly."""

from collections.abc import Sequence
from typing import Any

import pytest

from agents import labels
from agents.kubernetes import KubernetesError
from agents.reconciler import observed
from agents.reconciler.observed import Condition, Munged, Update, observe
from agents.reconciler.wanted import Roll
from agents.slurm import Client, Node
from tests.support.kubeanswers import Answers, api
from tests.support.slurmnodes import node
from tests.unit.agents.reconciler.world import BEGAN

Object = dict[str, Any]

POD: Object = {
    "metadata": {
        "name": "cpu-1",
        "uid": "u1",
        "labels": {
            "slurmstack.dev/component": "worker",
            "controller-revision-hash": "cpu-abc",
        },
        **BEGAN,
        "deletionTimestamp": "2026-01-01T00:01:00Z",
    },
    "spec": {
        "nodeName": "m1",
        "containers": [{"name": "slurmd", "env": [{"name": "NODE_CONF", "value": "CPUs=2"}]}],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:20Z"}
        ],
    },
}
PENDING: Object = {
    "metadata": {
        "name": "login-0",
        "uid": "u2",
        "labels": {"slurmstack.dev/component": "login"},
        **BEGAN,
    },
    "spec": {"containers": [{"name": "sshd"}]},
    "status": {"phase": "Pending"},
}
MACHINE: Object = {
    "metadata": {
        "name": "m1",
        "uid": "u3",
        **BEGAN,
        "annotations": {"a": "b"},
    },
    "spec": {
        "unschedulable": True,
        "providerID": "cloud://1",
        "taints": [{"key": "slurmstack.dev/unhealthy", "effect": "NoSchedule"}],
    },
    "status": {
        "nodeInfo": {"bootID": "b1"},
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": "2026-01-01T00:00:10Z",
            }
        ],
    },
}
NEW_YEAR = 1_767_225_600.0


class Slurm(Client):
    def __init__(self, *nodes: Node) -> None:
        self._nodes = nodes

    def nodes(self) -> tuple[Node, ...]:
        return self._nodes


def look(
    pods: list[Object], machines: list[Object], sets: Sequence[Object] = ()
) -> tuple[observed.Observed, Answers]:
    answers = Answers(
        pods={"items": pods}, nodes={"items": machines}, statefulsets={"items": list(sets)}
    )
    return observe(Slurm(node("cpu-1")), api(answers), "slurm"), answers


def test_only_the_requested_labels_of_machines_are_kept() -> None:
    given = {**MACHINE["metadata"], "labels": {"zone": "a", "rack": "b"}}
    answers = Answers(
        pods={"items": []},
        nodes={"items": [{**MACHINE, "metadata": given}]},
        statefulsets={"items": []},
    )

    seen = observe(Slurm(), api(answers), "slurm", frozenset({"zone", "missing"}))

    assert seen.machines["m1"].labels == {"zone": "a"}


def test_pods_machines_and_records_are_read() -> None:
    seen, _ = look([POD, PENDING], [MACHINE])

    pod, pending = seen.pods.values()
    assert (pod.machine, pod.is_worker, pod.is_ready, pod.conf) == ("m1", True, True, "CPUs=2")
    assert (pod.created, pod.revision, pending.revision) == (NEW_YEAR, "cpu-abc", "")
    assert (pod.started, pod.leaves) == (NEW_YEAR, NEW_YEAR + 60)
    assert (pod.ready_since, pending.ready_since) == (NEW_YEAR + 20, 0.0)
    assert (pending.machine, pending.is_worker, pending.is_ready) == ("", False, False)
    assert (pending.started, pending.leaves, pending.why) == (
        0.0,
        None,
        "the phase of the node's pod is Pending",
    )
    machine = seen.machines["m1"]
    assert (machine.uid, machine.version, machine.boot) == ("u3", "1", "b1")
    assert (machine.provider, machine.is_cordoned) == ("cloud://1", True)
    assert machine.is_tainted
    assert machine.conditions["Ready"] == Condition(
        "Unknown", "NodeStatusUnknown: Kubelet stopped posting node status.", NEW_YEAR + 10
    )
    assert machine.mark is None
    assert seen.records == {"cpu-1": node("cpu-1")}


def waited(name: str, message: str) -> Object:
    """Return a pod of the Job that waits until slurmctld uses a configuration."""
    container = {
        "name": "config-in-force",
        "state": {"terminated": {"exitCode": 0, "message": message}},
    }
    return {
        **PENDING,
        "metadata": {**PENDING["metadata"], "name": name},
        "status": {"phase": "Succeeded", "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("pods", "since"),
    [
        ([POD], 0),
        ([waited("a", "1767225600\n")], NEW_YEAR),
        ([waited("a", "1767225600"), waited("b", "1767225500")], NEW_YEAR),
        ([waited("a", "")], 0),
        ([waited("a", "scontrol: error: no answer")], 0),
    ],
)
def test_waiting_job_reports_when_a_configuration_took_effect(
    pods: list[Object], since: float
) -> None:
    seen, _ = look(pods, [MACHINE])

    assert seen.configured == since


def test_condition_of_the_reconciler_marks_a_machine() -> None:
    mark = {
        "type": labels.CONDITION_UNHEALTHY,
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    seen, _ = look([POD], [{**MACHINE, "status": {"conditions": [mark]}}])

    assert seen.machines["m1"].mark == Condition("True", "", NEW_YEAR)


def waiting(reason: str) -> Object:
    return {"name": "join", "state": {"waiting": {"reason": reason, "message": "back-off"}}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
            "0/3 nodes",
        ),
        ({"initContainerStatuses": [waiting("CrashLoopBackOff")]}, "join: CrashLoopBackOff"),
        ({"containerStatuses": [waiting("ImagePullBackOff")]}, "join: ImagePullBackOff back-off"),
        (
            {"containerStatuses": [waiting("PodInitializing")]},
            "the phase of the node's pod is Pending",
        ),
        ({"phase": "Running"}, "the pod's container slurmd is not ready; check its log"),
    ],
)
def test_message_about_an_unready_pod_names_the_cause(status: Object, why: str) -> None:
    seen, _ = look([{**POD, "status": status}], [MACHINE])

    assert seen.pods["cpu-1"].why.startswith(why)


AGAIN: Object = {
    "name": "munge",
    "ready": True,
    "restartCount": 1,
    "lastState": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:00Z"}},
}


@pytest.mark.parametrize(
    ("munge", "munged"),
    [
        ({"name": "munge", "ready": False, "restartCount": 0}, None),
        ({"name": "join", "ready": False, "restartCount": 7}, None),
        (AGAIN, Munged(is_ready=True, ended=NEW_YEAR)),
        ({**AGAIN, "ready": False}, Munged(is_ready=False, ended=NEW_YEAR)),
        ({**AGAIN, "lastState": {}}, Munged(is_ready=True, ended=0)),
    ],
)
def test_restart_of_munged_is_detected(munge: Object, munged: Munged | None) -> None:
    status = {"initContainerStatuses": [{"name": "guard", "restartCount": 3}, munge]}
    seen, _ = look([{**POD, "status": status}], [MACHINE])

    assert seen.pods["cpu-1"].munged == munged


def test_number_of_requests_is_independent_of_the_number_of_nodes() -> None:
    few = look([POD], [MACHINE])[1]
    many = look([POD] * 400, [MACHINE] * 400)[1]

    assert len(few.asked) == len(many.asked) == 3


@pytest.mark.parametrize(
    ("pods", "machines"),
    [
        ([{"metadata": {}}], [MACHINE]),
        ([POD], [{"metadata": {"name": "m1"}}]),
        ([POD], []),
        ([POD], [{**MACHINE, "status": {"conditions": [{}]}}]),
    ],
)
def test_incomplete_or_unexpected_objects_are_errors(
    pods: list[Object], machines: list[Object]
) -> None:
    with pytest.raises(KubernetesError):
        look(pods, machines)


def stateful_set(seen: int = 2, **fields: Any) -> Object:
    annotations = {labels.ROLL: '{"share": 0.2, "in_maintenance": false}'}
    return {
        "metadata": {
            "name": "cpu",
            "uid": "u4",
            **BEGAN,
            "generation": 2,
            "annotations": annotations,
            **fields,
        },
        "status": {"observedGeneration": seen, "updateRevision": "cpu-def"},
    }


def test_present_template_of_each_nodeset_is_read() -> None:
    seen, _ = look([], [MACHINE], [stateful_set()])

    assert seen.updates == {"cpu": Update("cpu-def", Roll(share=0.2, in_maintenance=False))}


@pytest.mark.parametrize(
    "item", [stateful_set(seen=1), stateful_set(annotations={}), stateful_set(name="login")]
)
def test_template_that_kubernetes_has_not_observed_is_unknown(item: Object) -> None:
    seen, _ = look([], [MACHINE], [item])

    assert "cpu" not in seen.updates


def test_invalid_settings_of_updates_are_an_error() -> None:
    item = stateful_set(annotations={labels.ROLL: "{}"})

    with pytest.raises(KubernetesError, match=r"cpu: annotation slurmstack\.dev/roll: '\{\}'"):
        look([], [MACHINE], [item])
