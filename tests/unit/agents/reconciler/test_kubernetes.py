"""Requests to Kubernetes, and how its answers are parsed."""

from typing import Any

import httpx
import pytest

from agents.reconciler import kubernetes, objects, observed
from agents.reconciler.kubernetes import Api, KubernetesError
from agents.reconciler.observed import CONDITION, Condition, Munged, observe
from agents.slurm import Client, Node
from components import conventions as c
from tests.unit.agents.reconciler.things import node
from tests.unit.agents.reconciler.world import BEGAN

Object = dict[str, Any]


class Cluster:
    """Answers from a table of paths, and records requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers[request.url.path.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            answer = answer.pop(0)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


def api(cluster: Cluster) -> Api:
    return Api("http://kubernetes", lambda: "token", transport=httpx.MockTransport(cluster))


def test_labels_and_names_match_the_graph() -> None:
    assert f"{c.DOMAIN}/component={c.WORKER}" == f"{observed.COMPONENT}={observed.WORKER}"
    everywhere = ",".join(f"{c.LABEL_COMPONENT}!={one}" for one in (c.NODE_EXPORTER, c.REBOOTER))
    assert f"app.kubernetes.io/name={c.PROJECT},{everywhere}" == observed.OURS
    assert observed.UNHEALTHY == c.TAINT_UNHEALTHY
    assert f"{observed.DOMAIN}/report" == c.ANNOTATION_REPORT


def test_reads_lists_page_by_page_to_the_end() -> None:
    pages = [
        {"items": [{"n": 1}], "metadata": {"continue": "next"}},
        {"items": [{"n": 2}], "metadata": {}},
    ]
    cluster = Cluster(nodes=pages)

    seen = api(cluster).items("/api/v1/nodes", dict[str, int], labelSelector="a=b")
    assert list(seen) == [{"n": 1}, {"n": 2}]
    first, second = (dict(request.url.params) for request in cluster.asked)
    assert first == {"limit": "500", "labelSelector": "a=b"}
    assert second == {**first, "continue": "next"}
    assert cluster.asked[0].headers["Authorization"] == "Bearer token"
    assert cluster.asked[0].headers["Accept-Encoding"] == "identity"


GONE = httpx.Response(410, json={"kind": "Status", "message": "The continue token has expired"})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.ConnectError("no way"), "no way; check that the API server runs"),
        (httpx.ReadTimeout("slow"), "slow; check that the API server runs"),
        (httpx.Response(403, json={"message": "nodes is forbidden"}), "forbidden; deploy again"),
        (httpx.Response(503, text="down"), "HTTP 503"),
        (httpx.Response(200, text="<html>"), "unexpected answer"),
        (httpx.Response(200, json=[]), "unexpected answer"),
        (GONE, "410 The continue token has expired"),
    ],
)
def test_reports_a_failed_request_in_one_line(answer: Any, message: str) -> None:
    with pytest.raises(KubernetesError) as caught:
        list(api(Cluster(nodes=answer)).items("/api/v1/nodes", objects.Node))

    assert message in str(caught.value)
    assert str(caught.value).startswith("Kubernetes: GET /api/v1/nodes: ")
    assert "\n" not in str(caught.value)


def test_unreadable_token_is_an_error() -> None:
    def token() -> str:
        raise FileNotFoundError("token")

    with pytest.raises(KubernetesError):
        Api("http://k", token, transport=httpx.MockTransport(Cluster())).ask("GET", "/x")


def test_no_credentials_outside_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(KubernetesError, match="not a pod with a service account"):
        kubernetes.in_cluster()


# --- Parsing -------------------------------------------------------------------------------------

POD: Object = {
    "metadata": {
        "name": "cpu-1",
        "uid": "u1",
        "labels": {"slurmstack.dev/component": "worker"},
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


def look(pods: list[Object], machines: list[Object]) -> tuple[observed.Observed, Cluster]:
    cluster = Cluster(pods={"items": pods}, nodes={"items": machines})
    return observe(Slurm(node("cpu-1")), api(cluster), "slurm"), cluster


def test_pods_machines_and_records_are_read() -> None:
    seen, _ = look([POD, PENDING], [MACHINE])

    pod, pending = seen.pods.values()
    assert (pod.machine, pod.is_worker, pod.is_ready, pod.conf) == ("m1", True, True, "CPUs=2")
    assert (pod.started, pod.leaves) == (NEW_YEAR, NEW_YEAR + 60)
    assert (pod.ready_since, pending.ready_since) == (NEW_YEAR + 20, 0.0)
    assert (pending.machine, pending.is_worker, pending.is_ready) == ("", False, False)
    assert (pending.started, pending.leaves, pending.why) == (
        0.0,
        None,
        "the pod's phase is Pending",
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
def test_reads_since_when_a_configuration_is_in_force(pods: list[Object], since: float) -> None:
    seen, _ = look(pods, [MACHINE])

    assert seen.configured == since


def test_own_condition_marks_a_machine() -> None:
    mark = {"type": CONDITION, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
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
        ({"containerStatuses": [waiting("PodInitializing")]}, "the pod's phase is Pending"),
        ({"phase": "Running"}, "slurmd is not ready"),
    ],
)
def test_reports_why_a_pod_is_not_ready(status: Object, why: str) -> None:
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
def test_detects_a_restarted_munged(munge: Object, munged: Munged | None) -> None:
    status = {"initContainerStatuses": [{"name": "guard", "restartCount": 3}, munge]}
    seen, _ = look([{**POD, "status": status}], [MACHINE])

    assert seen.pods["cpu-1"].munged == munged


def test_the_number_of_requests_does_not_grow_with_the_nodes() -> None:
    few = look([POD], [MACHINE])[1]
    many = look([POD] * 400, [MACHINE] * 400)[1]

    assert len(few.asked) == len(many.asked) == 2


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
