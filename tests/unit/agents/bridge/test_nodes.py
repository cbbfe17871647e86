"""When Slurm may free the resources of a job, and how epilogs ask for it."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents import labels
from agents.bridge import wait
from agents.bridge.nodes import Nodes
from agents.bridge.observed import Job, Pod, Share
from agents.bridge.podspec import Pod as PodObject
from agents.bridge.proof import Proofs, proof
from agents.bridge.server import CONNECTIONS, QUESTIONS, Server
from agents.kubernetes import KubernetesError
from tests.support.waiting import eventually
from tests.unit.agents.bridge import things
from tests.unit.agents.bridge.things import unplaced

OWN = "/jobs/7/cpu-0"
KEY = b"a key"
NODES = {"cpu-0": "node-1", "cpu-1": "node-2"}
BOTH = {"cpu-0": Share(1, 0), "cpu-1": Share(1, 0)}


class Cluster:
    """Pods of job 7, as the API server shows them."""

    def __init__(self, *pods: PodObject) -> None:
        self.pods = list(pods)
        self.is_down = False

    def running(self, job: int, uids: Any) -> list[PodObject]:
        if self.is_down:
            raise KubernetesError("GET pods", "no way")
        known = set(uids)
        link = {labels.JOB: str(job), labels.BRIDGE: "slurm"}
        return [
            one
            for one in self.pods
            if one.metadata.uid in known or link.items() <= one.metadata.labels.items()
        ]

    def running_on(self, machine: str) -> list[PodObject]:
        if self.is_down:
            raise KubernetesError("GET pods", "no way")
        return [one for one in self.pods if one.spec.node_name == machine]


class Records:
    def __init__(self, job: Job | None) -> None:
        self.job = job

    def current(self, number: int) -> Job | None:
        return self.job


def running(name: str, machine: str) -> PodObject:
    link = {labels.JOB: "7", labels.BRIDGE: "slurm"}
    return things.pod(name, {"nodeName": machine} if machine else {}, labels=link)


def job(*state: str, shares: dict[str, Share] = BOTH) -> Job:
    return Job(7, "g", 2, frozenset(state), shares=shares)


def nodes(cluster: Cluster, record: Job | None) -> Nodes:
    made = Nodes(cluster, Records(record))  # type: ignore[arg-type]  # both are fakes
    made.set_nodes(NODES)
    return made


def bound(made: Nodes, one: Pod, machine: str) -> list[str]:
    sent: list[str] = []
    made.bind(7, one, machine, lambda: sent.append(one.name))
    return sent


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (job("RUNNING"), False),
        (job("CONFIGURING", "RUNNING"), False),
        # Only a program other than the epilog asks about a job that has not started.
        (job("PENDING", shares={}), False),
        (job("SUSPENDED"), False),
        (job("COMPLETED", "COMPLETING"), True),
        (job("TIMEOUT"), True),
        # Slurm has forgotten the job, or took this node from it.
        (None, True),
        (job("RUNNING", shares={"cpu-1": Share(1, 0)}), True),
    ],
)
def test_only_a_job_that_no_longer_has_the_node_frees_it(record: Job | None, may: bool) -> None:
    assert nodes(Cluster(), record).may_free(7, "cpu-0") is may


def test_node_is_free_when_the_pods_on_its_machine_have_stopped() -> None:
    cluster = Cluster(running("a", "node-1"))
    made = nodes(cluster, job("COMPLETING"))
    assert not made.may_free(7, "cpu-0")
    assert made.may_free(7, "cpu-1")
    assert not made.may_free(7, "a-node-without-a-machine")

    cluster.pods.clear()
    assert made.may_free(7, "cpu-0")


def test_no_pod_is_bound_to_a_job_that_slurm_may_have_freed() -> None:
    made = nodes(Cluster(), job("COMPLETING"))
    assert made.may_free(7, "cpu-0")

    assert bound(made, unplaced("a"), "node-1") == []
    assert bound(made, unplaced("a"), "node-2") == ["a"]


def test_pod_that_was_just_bound_counts_even_if_its_list_is_older() -> None:
    late = running("a", "")
    one = replace(unplaced("a"), uid=late.metadata.uid)
    made = nodes(Cluster(late), job("COMPLETING"))
    assert bound(made, one, "node-1") == ["a"]

    assert not made.may_free(7, "cpu-0")


def test_bridge_forgets_jobs_that_slurm_no_longer_knows() -> None:
    made = nodes(Cluster(), job("COMPLETING"))
    assert made.may_free(7, "cpu-0")
    made.forget_all_but({})
    assert bound(made, unplaced("a"), "node-1") == ["a"]


# --- Questions over HTTP -------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(running("a", "node-1"))


@pytest.fixture
def leaders() -> list[bool]:
    return [True]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path / "key"


@pytest.fixture
def server(cluster: Cluster, leaders: list[bool], key: Path) -> Iterator[Server]:
    made = nodes(cluster, job("COMPLETING"))
    with Server(0, key, made, lambda: leaders[0]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def port(server: Server) -> int:
    return server.server_port


def ask(port: int, question: str, key: bytes = KEY) -> int | None:
    return wait.ask("127.0.0.1", port, key, question)


def test_epilog_waits_for_the_pods_of_its_job(
    cluster: Cluster, port: int, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "cpu-0")
    monkeypatch.setattr("time.sleep", lambda _: cluster.pods.clear())
    assert ask(port, OWN) == http.client.CONFLICT

    assert wait.main("127.0.0.1", port, key=key) == 0
    assert not cluster.pods


def test_epilog_waits_while_no_bridge_can_answer(
    cluster: Cluster, leaders: list[bool], port: int
) -> None:
    cluster.pods.clear()
    leaders[0] = False
    assert ask(port, OWN) == http.client.SERVICE_UNAVAILABLE
    leaders[0], cluster.is_down = True, True
    assert ask(port, OWN) == http.client.SERVICE_UNAVAILABLE
    cluster.is_down = False
    assert ask(port, OWN) == http.client.OK


@pytest.mark.parametrize("question", ["/jobs/x/cpu-0", "/jobs/7/cpu-0/x", "/", "/machines"])
def test_other_questions_have_no_answer(port: int, question: str) -> None:
    assert ask(port, question) == http.client.NOT_FOUND


def test_epilog_waits_if_nothing_listens() -> None:
    assert ask(1, OWN) is None


def test_node_starts_when_the_pods_on_its_machine_have_stopped(
    cluster: Cluster, port: int, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(port, "/machines/node-2") == http.client.OK
    monkeypatch.setattr("time.sleep", lambda _: cluster.pods.clear())

    assert wait.main("127.0.0.1", port, "node-1", key=key) == 0
    assert not cluster.pods


def test_bridge_answers_only_questions_of_nodes(server: Server, port: int) -> None:
    """A question about a machine makes the bridge delete the pods there."""
    for question in (OWN, "/machines/node-1"):
        assert ask(port, question, b"another key") == http.client.UNAUTHORIZED
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", question)
            assert connection.getresponse().status == http.client.UNAUTHORIZED
    assert not server.nodes.starting()
    assert ask(port, "/machines/node-1") == http.client.CONFLICT
    assert server.nodes.starting() == {"node-1"}


def test_bridge_accepts_a_new_key(port: int, key: Path, cluster: Cluster) -> None:
    cluster.pods.clear()
    key.write_bytes(b"another key")
    assert ask(port, OWN) == http.client.UNAUTHORIZED
    assert ask(port, OWN, b"another key") == http.client.OK


@pytest.mark.parametrize("value", ["", "slurmstack", "slurmstack x y", "Bearer 1 2", "a b c d"])
def test_malformed_proofs_are_invalid(value: str) -> None:
    assert not Proofs().accept(value, KEY, OWN, 1000.0)


def test_proof_is_valid_for_one_question_and_a_short_time() -> None:
    value = proof(KEY, OWN, 1000.0)
    assert Proofs().accept(value, KEY, OWN, 1200.0)
    assert Proofs().accept(value, KEY, OWN, 800.0)
    assert not Proofs().accept(value, KEY, OWN, 1301.0)
    assert not Proofs().accept(value, KEY, OWN, 699.0)
    assert not Proofs().accept(value, KEY, "/jobs/8/cpu-0", 1000.0)
    assert not Proofs().accept(value.replace("1000", "1100"), KEY, OWN, 1100.0)


def test_proof_is_accepted_once() -> None:
    """Otherwise, a client that reads a question on the network could repeat it."""
    proofs = Proofs()
    first, second = proof(KEY, OWN, 1000.0), proof(KEY, OWN, 1000.5)
    assert proofs.accept(first, KEY, OWN, 1000.0)
    assert not proofs.accept(first, KEY, OWN, 1000.1)
    assert proofs.accept(second, KEY, OWN, 1000.6)
    assert not proofs.accept(first, KEY, OWN, 1000.7)
    # The bridge remembers questions only while they could be repeated.
    assert not proofs.accept(second, KEY, OWN, 1400.0)


def test_node_whose_clock_is_wrong_says_so_and_waits(
    port: int,
    key: Path,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.pods.clear()
    late = [3600.0, 3600.0, 0.0]
    monkeypatch.setattr(wait, "proof", lambda key, path, now: proof(key, path, now - late.pop(0)))
    monkeypatch.setattr("time.sleep", lambda _: None)

    assert wait.main("127.0.0.1", port, "node-1", key=key) == 0
    assert capsys.readouterr().out.count("check the clock") == 1


def test_too_many_clients_are_sent_away_until_others_leave(port: int, cluster: Cluster) -> None:
    cluster.pods.clear()
    with ExitStack() as clients:
        for _ in range(CONNECTIONS):
            clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        eventually("the server is full", lambda: ask(port, OWN) is None)
    eventually("the server answers", lambda: ask(port, OWN) == http.client.OK)


def test_bridge_knows_on_which_machines_nodes_wait(cluster: Cluster) -> None:
    made = nodes(cluster, None)
    assert not made.may_start("node-1")
    assert made.starting() == {"node-1"}

    cluster.pods.clear()
    assert made.restarted() == set()
    assert made.may_start("node-1")
    assert made.starting() == set()
    assert made.restarted() == {"node-1"}


def test_bridge_answers_the_kubelet_while_slurm_does_not_answer(
    server: Server, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(server.nodes, "may_free", lambda *_: go_on.wait(30))
    waiting = [
        threading.Thread(target=ask, args=(port, f"/jobs/{number}/cpu-0"))
        for number in range(QUESTIONS)
    ]
    for one in waiting:
        one.start()
    eventually("the bridge is busy", lambda: ask(port, OWN) == http.client.SERVICE_UNAVAILABLE)
    assert ask(port, "/live") == http.client.OK
    go_on.set()
    for one in waiting:
        one.join()


def test_job_that_waits_again_may_use_its_nodes_again() -> None:
    made = nodes(Cluster(), job("COMPLETING"))
    assert made.may_free(7, "cpu-0")
    made.forget_all_but({7: job("COMPLETING")})
    assert bound(made, unplaced("a"), "node-1") == []
    made.forget_all_but({7: job("PENDING")})
    assert bound(made, unplaced("a"), "node-1") == ["a"]
