"""The requests with which the bridge carries out its plans."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from agents import labels
from agents.bridge.actions import (
    Action,
    Bind,
    Cancel,
    Evict,
    Finish,
    Link,
    Refuse,
    Release,
    Submit,
    Tell,
    Unlink,
)
from agents.bridge.carry import Carried, Carrier
from agents.bridge.identity import Identity
from agents.bridge.nodes import Nodes
from agents.bridge.observed import Pod, Request
from agents.bridge.records import Records
from agents.bridge.wishes import Wishes
from agents.kubernetes import Api, KubernetesError
from agents.slurm import Client, SlurmError
from tests.unit.agents.bridge import things

PATH = "/api/v1/namespaces/lab/pods/a"
REQUEST = Request("lab/a", Identity("alice", 1001, 1001, None), Wishes(), things.spec(), {})


class Services:
    """Records all requests to Kubernetes and Slurm, and answers each with `answer`."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.answer: Any = httpx.Response(200, json={"errors": [], "job_id": 7, "jobs": []})
        self.acts = True

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        path = request.url.raw_path.decode().removeprefix("/slurm/v0.0.42/")
        self.sent.append((request.method, path, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: httpx.Response = self.answer
        return answer

    def carry(self, *actions: Action) -> Carried:
        transport = httpx.MockTransport(self)
        slurm = Client("http://s", lambda: "t", transport=transport, sleep=lambda _: None)
        api = Api("http://k", lambda: "t", transport=transport)
        records = Records(slurm)
        nodes = Nodes(None, records)  # type: ignore[arg-type]  # no test asks for pods
        carrier = Carrier(slurm, api, "slurm", records, nodes, lambda: self.acts)
        return carrier.carry(actions, things.wanted())


@pytest.fixture
def services() -> Services:
    return Services()


def pod(*finalizers: str) -> Pod:
    return Pod("lab", "a", "uid-a", "5", 0.0, "g", 1, REQUEST, finalizers=finalizers)


def test_link_is_stored_in_the_pod_and_guards_it(services: Services) -> None:
    services.carry(Link(pod("x"), 7))
    assert services.sent == [
        (
            "PATCH",
            PATH,
            {
                "metadata": {
                    "uid": "uid-a",
                    "resourceVersion": "5",
                    "labels": {labels.JOB: "7", labels.BRIDGE: "slurm"},
                    "finalizers": ["x", labels.BRIDGE],
                }
            },
        )
    ]


def test_unlinked_pod_has_no_job(services: Services) -> None:
    services.carry(Unlink(pod(labels.BRIDGE)))
    (_, _, body) = services.sent[0]
    assert body["metadata"]["labels"] == {labels.JOB: None, labels.BRIDGE: None}


def test_released_pod_keeps_other_finalizers(services: Services) -> None:
    services.carry(Release(pod("x", labels.BRIDGE)))
    assert services.sent[0][2]["metadata"]["finalizers"] == ["x"]


def test_pod_that_cannot_be_sent_to_slurm_does_not_stop_the_others(services: Services) -> None:
    huge = replace(REQUEST, wishes=Wishes(cpus_per_task=10**5000))

    carried = services.carry(Submit("g", huge, (pod(),), frozenset()), Unlink(pod()))

    assert [type(action) for action in carried.done] == [Unlink]
    assert carried.refused == ("g",)


def test_pod_is_bound_by_its_uid(services: Services) -> None:
    services.carry(Bind(7, ((pod(), "node-1"),)))
    ((method, path, body),) = services.sent
    assert (method, path) == ("POST", f"{PATH}/binding")
    assert (body["metadata"]["uid"], body["target"]["name"]) == ("uid-a", "node-1")


def test_evicted_pod_says_why_and_is_deleted_by_its_uid(services: Services) -> None:
    services.carry(Evict(pod(), "its job 7 is CANCELLED"))
    status, event, deletion = services.sent
    (condition,) = status[2]["status"]["conditions"]
    assert (condition["type"], condition["message"]) == (
        "DisruptionTarget",
        "its job 7 is CANCELLED",
    )
    assert event[2]["involvedObject"]["uid"] == "uid-a"
    assert deletion[:2] == ("DELETE", PATH)
    assert deletion[2]["preconditions"] == {"uid": "uid-a"}


def test_waiting_pod_says_why_without_an_event(services: Services) -> None:
    services.carry(Tell(pod(), "job 7 waits in Slurm: Priority"))
    ((_, path, body),) = services.sent
    assert path == f"{PATH}/status"
    assert body["status"]["conditions"][0]["type"] == "PodScheduled"


def test_pod_that_never_runs_gets_an_event(services: Services) -> None:
    services.carry(Refuse(pod(), "no rule"))
    assert [path for _, path, _ in services.sent] == [
        f"{PATH}/status",
        "/api/v1/namespaces/lab/events",
    ]


def test_end_of_a_job_is_a_signal_to_its_script(services: Services) -> None:
    services.carry(Finish(7, success=True), Finish(8, success=False), Cancel(9, "x"))
    assert [(method, path) for method, path, _ in services.sent] == [
        ("DELETE", "job/7?signal=USR1&flags=BATCH_JOB"),
        ("DELETE", "job/8?signal=USR2&flags=BATCH_JOB"),
        ("DELETE", "job/9"),
    ]


def test_job_that_slurm_refuses_is_told_to_all_its_pods(services: Services) -> None:
    refusal = {"error": "Invalid account", "error_number": 2045}
    services.answer = httpx.Response(200, json={"errors": [refusal]})

    done = services.carry(Submit("g", REQUEST, (pod(), pod()), frozenset()))

    assert done.refused == ("g",)
    assert done.done == ()
    assert "Invalid account" in done.notes[0]
    told = [body for method, path, body in services.sent if path == f"{PATH}/status"]
    assert len(told) == 2
    assert "Invalid account" in told[0]["status"]["conditions"][0]["message"]


@pytest.mark.parametrize("status", [404, 409])
def test_pod_that_has_changed_is_left_to_the_next_plan(services: Services, status: int) -> None:
    services.answer = httpx.Response(status, json={"message": "changed"})
    done = services.carry(Link(pod(), 7), Release(pod()))
    assert (done.done, done.notes) == ((), ())
    assert len(services.sent) == 2


def test_other_refusals_are_noted_and_stop_nothing(services: Services) -> None:
    services.answer = httpx.Response(422, json={"message": "a webhook refused"})
    done = services.carry(Link(pod(), 7), Release(pod()))
    assert len(done.notes) == 2
    assert "link pod lab/a to job 7" in done.notes[0]


@pytest.mark.parametrize(
    ("action", "error"), [(Link(pod(), 7), KubernetesError), (Cancel(7, "x"), SlurmError)]
)
def test_unreachable_service_ends_the_pass(
    services: Services, action: Action, error: type[Exception]
) -> None:
    services.answer = httpx.ConnectError("no way")
    with pytest.raises(error):
        services.carry(action)


def test_bridge_that_lost_its_lease_does_nothing(services: Services) -> None:
    services.acts = False
    assert services.carry(Cancel(7, "x")).done == ()
    assert services.sent == []
