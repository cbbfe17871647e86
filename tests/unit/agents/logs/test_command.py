"""The agent as it runs: against an API server and a receiver on loopback."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.logs import __main__ as command
from agents.logs import follow, metrics, send
from agents.logs.kubernetes import OURS, Api
from agents.logs.lines import Line
from agents.logs.sent import LOOK_BACK
from components import conventions as c
from components import pods
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.unit.agents.logs.world import WITHIN, Kubernetes, Receiver

FAR = LOOK_BACK / 1e9 + 60
"""Seconds ago that are further back than an agent looks that knows nothing."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (follow, send):
        monkeypatch.setattr(module, "PAUSE", 0.02)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(send, "GATHER", 0.02)
    monkeypatch.setattr(send, "LAST", 1)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> metrics.Counts:
    """What is counted by each agent of a test."""
    one = metrics.Counts()
    monkeypatch.setattr(command, "Counts", lambda: one)
    return one


@pytest.fixture
def kubernetes() -> Kubernetes:
    one = Kubernetes()
    one.make("controller-1", "controller", "slurmctld", "munge")
    return one


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


class Stack:
    """Both, and an agent that runs while a test does something."""

    def __init__(self, kubernetes: Kubernetes, receiver: Receiver, folder: Path) -> None:
        self.kubernetes = kubernetes
        self.receiver = receiver
        self.environment = {
            "NAMESPACE": "slurm",
            "CLUSTER": "lab",
            "LEVEL": "info",
            "STATE": str(folder / "sent.json"),
            "PORT": "0",
        }
        self.headers: Path | None = None
        self.endpoint = ""
        self.api = ""

    def during(self, scenario: Callable[[], object]) -> float:
        """Runs the agent while the scenario does; how many seconds it took to end when told to."""
        problems: list[BaseException] = []
        ended, told = threading.Event(), [0.0]

        def act() -> None:
            try:
                scenario()
            except BaseException as problem:
                problems.append(problem)
            told[0] = time.monotonic()
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

        async def agent() -> None:
            api = Api("slurm", self.api, lambda: "token")
            receiver = send.Receiver(f"{self.endpoint}/otlp", self.headers)
            running = asyncio.create_task(command.send(api, receiver, self.environment))
            await asyncio.sleep(0)
            thread.start()
            await running

        thread = threading.Thread(target=act, daemon=True)
        try:
            asyncio.run(agent())
        finally:
            ended.set()
        thread.join(WITHIN)
        if problems:
            raise problems[0]
        return time.monotonic() - told[0]


@pytest.fixture
def stack(
    kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts, tmp_path: Path
) -> Iterator[Stack]:
    one = Stack(kubernetes, receiver, tmp_path)
    with kubernetes.serve() as one.api, receiver.serve() as one.endpoint:
        yield one


def numbered(first: int, last: int) -> list[str]:
    return [f"slurmctld: line {number}" for number in range(first, last)]


def test_labels_are_those_that_the_graph_gives() -> None:
    (own,) = pods.labels(c.LOGS).items() - pods.LABELS.items()
    (ours,) = pods.LABELS.items()
    assert f"{ours[0]}={ours[1]},{own[0]}!={own[1]}" == OURS


def test_each_line_comes_once_and_in_order_and_says_whose_it_is(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 50))

    def scenario() -> None:
        receiver.has("slurmctld: line 49")
        kubernetes.write("controller-1", "slurmctld", *numbered(50, 100))
        kubernetes.write("controller-1", "munge", "munged: Error:     odd")
        receiver.has("slurmctld: line 99", "munged: Error:     odd")

    stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 100)
    ((source, record),) = [one for one in receiver.records if "munged" in str(one[1])]
    assert source == {
        "service.name": "controller",
        "k8s.namespace.name": "slurm",
        "k8s.pod.name": "controller-1",
        "k8s.container.name": "munge",
        "k8s.node.name": "node-0",
        "slurm.cluster": "lab",
    }
    assert record["severityText"] == "ERROR"
    assert abs(int(record["timeUnixNano"]) - time.time_ns()) < WITHIN * 10**9
    assert counts.lines == {"controller": 101}


def test_what_is_below_the_level_stays(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    stack.environment["LEVEL"] = "warn"
    lines = ["slurmctld: debug:  a", "slurmctld: b", "slurmctld: warning: c", "slurmctld: error: d"]
    kubernetes.write("controller-1", "slurmctld", *lines)

    stack.during(lambda: receiver.has(lines[-1]))

    assert receiver.texts() == lines[2:]


def test_pods_that_come_later_are_followed(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    def scenario() -> None:
        eventually("the first pod is followed", lambda: counts.containers == 2)
        kubernetes.make("cpu-0", "worker", "slurmd")
        kubernetes.write("cpu-0", "slurmd", "slurmd: up")
        receiver.has("slurmd: up")
        kubernetes.write("cpu-0", "slurmd", "slurmd: down")
        kubernetes.delete("cpu-0")
        receiver.has("slurmd: down")
        eventually("and no more when they are gone", lambda: counts.containers == 2)

    stack.during(scenario)

    assert counts.cut == 0


def test_a_container_that_goes_before_its_end_was_read_is_counted(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    kubernetes.make("cpu-0", "worker", "slurmd")
    kubernetes.write("cpu-0", "slurmd", "slurmd: up")

    def scenario() -> None:
        receiver.has("slurmd: up")
        with kubernetes.news:
            kubernetes.cut("cpu-0", "slurmd")
            kubernetes.delete("cpu-0")
        eventually("it is counted", lambda: counts.cut == 1)

    stack.during(scenario)

    assert counts.containers == 2


def test_a_pod_of_the_same_name_is_another(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        for number in range(3):
            kubernetes.make("cpu-0", "worker", "slurmd")
            kubernetes.write("cpu-0", "slurmd", f"slurmd: pod {number}")
            receiver.has(f"slurmd: pod {number}")
            kubernetes.delete("cpu-0")

    stack.during(scenario)

    assert receiver.texts("slurmd") == [f"slurmd: pod {number}" for number in range(3)]


def test_a_container_that_restarts_is_followed_with_its_last_words(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        for number in range(5):
            kubernetes.write("controller-1", "slurmctld", f"slurmctld: fatal: {number}")
            kubernetes.restart("controller-1", "slurmctld")
        kubernetes.write("controller-1", "slurmctld", "slurmctld: up")
        receiver.has("slurmctld: up", "slurmctld: fatal: 4")

    stack.during(scenario)


def test_the_last_words_of_a_container_that_restarted_before_are_sent(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.write("controller-1", "slurmctld", "slurmctld: fatal: out of room")
    kubernetes.restart("controller-1", "slurmctld")
    kubernetes.write("controller-1", "slurmctld", "slurmctld: up")

    stack.during(lambda: receiver.has("slurmctld: up"))

    assert receiver.texts() == ["slurmctld: fatal: out of room", "slurmctld: up"]


def test_what_has_ended_is_read_to_its_end_and_not_asked_for_again(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.make("job-x", "accounts", "accounts")
    kubernetes.write("job-x", "accounts", "done")

    def of_the_job() -> int:
        return sum(one["pod"] == "job-x" for one in kubernetes.asked)

    def scenario() -> None:
        receiver.has("done")
        kubernetes.end("job-x", "accounts", "ended")
        receiver.has("ended")
        eventually("it is asked for after its end", lambda: of_the_job() >= 2)
        kubernetes.write("controller-1", "slurmctld", *numbered(0, 3))
        receiver.has("slurmctld: line 2")
        asked = of_the_job()
        time.sleep(0.5)
        assert of_the_job() == asked

    stack.during(scenario)

    assert receiver.texts("accounts") == ["done", "ended"]


def test_a_connection_that_breaks_loses_nothing_and_sends_nothing_twice(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        for number in range(10):
            kubernetes.write("controller-1", "slurmctld", *numbered(10 * number, 10 * number + 10))
            if number % 2:
                receiver.has(f"slurmctld: line {10 * number}")
            kubernetes.cut("controller-1", "slurmctld")
        receiver.has("slurmctld: line 99")

    stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 100)


def test_a_clock_that_was_set_back_hides_no_line(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        kubernetes.write("controller-1", "slurmctld", "slurmctld: before")
        receiver.has("slurmctld: before")
        kubernetes.write("controller-1", "slurmctld", "slurmctld: after", ago=30)
        receiver.has("slurmctld: after")

    stack.during(scenario)


# --- What cannot begin ---------------------------------------------------------------------------


def test_outside_of_a_cluster_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESPACE", "slurm")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert command.main() == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith('level=error msg="no lines are sent: Kubernetes: credentials: ')


@pytest.mark.parametrize("text", [None, "no certificates"])
def test_certificates_that_are_none_are_told_of_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str | None,
) -> None:
    if text is not None:
        (tmp_path / "ca.pem").write_text(text)
    monkeypatch.setenv("NAMESPACE", "slurm")
    monkeypatch.setenv("CA", str(tmp_path / "ca.pem"))
    monkeypatch.setattr(command, "credentials", lambda: ("http://here", lambda: "token", True))

    assert command.main() == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith('level=error msg="no lines are sent: monitoring.logs.ca: ')


# --- A receiver that does not take them ----------------------------------------------------------


def test_a_receiver_that_is_away_gets_all_of_it_when_it_is_back(
    kubernetes: Kubernetes,
    receiver: Receiver,
    counts: metrics.Counts,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack, port = Stack(kubernetes, receiver, tmp_path), free_port()
    stack.endpoint = f"http://127.0.0.1:{port}"

    def scenario() -> None:
        with receiver.serve(port):
            kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
            receiver.has("slurmctld: line 9")
        kubernetes.write("controller-1", "slurmctld", *numbered(10, 20))
        eventually("a line waits", lambda: counts.waiting_since is not None)
        time.sleep(0.3)
        with receiver.serve(port):
            receiver.has("slurmctld: line 19")
            eventually("none waits", lambda: counts.waiting_since is None)

    with kubernetes.serve() as stack.api:
        stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 20)
    said = capsys.readouterr().err.splitlines()
    assert len(said) <= 3, "one that it is away, or another as it goes, and one that it is back"
    assert said[0].startswith(f'level=error msg="{stack.endpoint}')
    assert said[-1] == f'level=info msg="{stack.endpoint}/otlp: accepts lines again"'


@pytest.mark.parametrize("status", [429, 500, 503])
def test_who_asks_for_patience_gets_it(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts, status: int
) -> None:
    receiver.status = status
    receiver.headers_out = {"Retry-After": "0"}
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))

    def scenario() -> None:
        eventually("it is tried again", lambda: receiver.requests >= 3)
        receiver.status = 200
        receiver.has("slurmctld: line 9")

    stack.during(scenario)

    assert receiver.texts() == numbered(0, 10)
    assert counts.refused == 0


@pytest.mark.parametrize("status", [400, 401, 413, 301])
def test_what_is_refused_is_counted_told_once_and_not_sent_again(
    stack: Stack,
    kubernetes: Kubernetes,
    receiver: Receiver,
    counts: metrics.Counts,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    receiver.status, receiver.body = status, b"no\nsuch thing"

    def scenario() -> None:
        for number in range(3):
            kubernetes.write("controller-1", "slurmctld", f"slurmctld: refused {number}")
            eventually("it is refused", lambda: counts.refused > number)  # noqa: B023
        receiver.status = 200
        kubernetes.write("controller-1", "slurmctld", "slurmctld: taken")
        receiver.has("slurmctld: taken")

    stack.during(scenario)

    assert receiver.texts() == ["slurmctld: taken"]
    assert counts.refused == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert f"the receiver refuses lines: HTTP {status} no such thing" in said[0]


def test_a_part_that_is_refused_is_counted(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    receiver.body = b'{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}}'
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 3))

    def scenario() -> None:
        receiver.has("slurmctld: line 2")
        eventually("it is counted", lambda: counts.refused == 1)

    stack.during(scenario)


def test_while_nobody_takes_lines_they_stay_with_the_kubelet(
    stack: Stack,
    kubernetes: Kubernetes,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send, "ROOM", 20)
    monkeypatch.setattr(send, "LINES", 10)
    handed: list[str] = []
    original = follow.Following._hand_on

    async def counted(self: follow.Following, one: follow.Followed, line: Line) -> None:
        handed.append(line.text)
        await original(self, one, line)

    monkeypatch.setattr(follow.Following, "_hand_on", counted)
    receiver.status = 503
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 200))

    def scenario() -> None:
        eventually("it is tried again", lambda: receiver.requests >= 3)
        assert len(handed) < 40, "no more was read than there is room for"
        receiver.status = 200
        receiver.has("slurmctld: line 199")

    stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 200)


# --- Headers -------------------------------------------------------------------------------------


def test_headers_come_from_the_secrets_files_as_they_are_now(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, tmp_path: Path
) -> None:
    stack.headers = tmp_path / "headers"
    (stack.headers / "..data").mkdir(parents=True)
    (stack.headers / "X-Scope-OrgID").write_text("lab\n")
    (stack.headers / "Authorization").write_text("Bearer first")

    def scenario() -> None:
        kubernetes.write("controller-1", "slurmctld", "slurmctld: a")
        receiver.has("slurmctld: a")
        assert receiver.headers["X-Scope-OrgID"] == "lab"
        assert receiver.headers["Authorization"] == "Bearer first"
        (tmp_path / "headers" / "Authorization").write_text("Bearer second")
        kubernetes.write("controller-1", "slurmctld", "slurmctld: b")
        receiver.has("slurmctld: b")
        assert receiver.headers["Authorization"] == "Bearer second"

    stack.during(scenario)


def test_a_header_that_cannot_be_one_waits_and_is_not_repeated(
    stack: Stack,
    kubernetes: Kubernetes,
    receiver: Receiver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack.headers = tmp_path
    value = tmp_path / "Authorization"
    value.write_text("Bearer one\nBearer two")
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")
    said: list[str] = []

    def told() -> bool:
        said.append(capsys.readouterr().err)
        return "headers_secret: Authorization: expected one line" in "".join(said)

    def scenario() -> None:
        eventually("it is told", told)
        value.write_text("Bearer one")
        receiver.has("slurmctld: a")

    stack.environment["STATE"] = str(tmp_path / ".sent.json")
    stack.during(scenario)

    assert "Bearer" not in "".join(said)


# --- Ends and beginnings -------------------------------------------------------------------------


def test_who_is_told_to_end_sends_what_is_held_and_ends_within_seconds(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "GATHER", 1)
    monkeypatch.setattr(send, "LAST", 10)

    def scenario() -> None:
        eventually("it is followed", lambda: len(kubernetes.asked) >= 2)
        kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
        time.sleep(0.3)
        assert receiver.texts() == []

    took = stack.during(scenario)

    assert receiver.texts() == numbered(0, 10)
    assert took < send.LAST


def test_who_is_told_to_end_does_not_wait_for_a_receiver_that_is_away(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "LAST", 0.3)
    receiver.status = 503
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")

    took = stack.during(lambda: eventually("it is tried", lambda: receiver.requests >= 1))

    assert took < 5


def test_a_container_that_starts_again_goes_on_where_it_was(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.write("controller-1", "slurmctld", "slurmctld: long ago", ago=FAR)
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
    stack.during(lambda: receiver.has("slurmctld: line 9"))
    first = receiver.texts("slurmctld")
    kubernetes.write("controller-1", "slurmctld", *numbered(10, 20))
    kubernetes.make("cpu-0", "worker", "slurmd")
    kubernetes.write("cpu-0", "slurmd", "slurmd: meanwhile")
    stack.during(lambda: receiver.has("slurmctld: line 19", "slurmd: meanwhile"))

    assert first == numbered(0, 10), "older lines than it looks back stay"
    # Of the last line, only its moment is known: another could have the same.
    assert receiver.texts("slurmctld") == [*first, first[-1], *numbered(10, 20)]


def test_while_the_receiver_was_away_a_container_that_starts_again_has_lost_nothing(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
    receiver.status = 503
    with monkeypatch.context() as patch:
        patch.setattr(send, "LAST", 0.3)
        stack.during(lambda: eventually("it is tried", lambda: receiver.requests >= 2))
    receiver.status = 200
    stack.during(lambda: receiver.has("slurmctld: line 9"))

    assert receiver.texts("slurmctld") == numbered(0, 10)


def test_a_pod_that_takes_the_place_of_one_without_its_file_loses_nothing(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
    stack.during(lambda: receiver.has("slurmctld: line 9"))
    Path(stack.environment["STATE"]).unlink()
    kubernetes.write("controller-1", "slurmctld", *numbered(10, 20))
    stack.during(lambda: receiver.has("slurmctld: line 19"))

    assert set(numbered(0, 20)) == set(receiver.texts("slurmctld"))


def test_a_file_that_is_broken_is_told_of_and_begun_anew(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(stack.environment["STATE"]).write_text('{"begun": ')
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")

    stack.during(lambda: receiver.has("slurmctld: a"))

    assert "sending the lines of the last 900 s" in capsys.readouterr().err


def test_kubernetes_may_be_away_for_a_while(
    kubernetes: Kubernetes,
    receiver: Receiver,
    counts: metrics.Counts,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack, port = Stack(kubernetes, receiver, tmp_path), free_port()
    stack.api = f"http://127.0.0.1:{port}"
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")

    def scenario() -> None:
        time.sleep(0.3)
        with kubernetes.serve(port):
            receiver.has("slurmctld: a")

    with receiver.serve() as stack.endpoint:
        stack.during(scenario)

    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith('level=error msg="Kubernetes: GET /api/v1/namespaces/slurm/pods: ')
    assert said[1] == 'level=info msg="Kubernetes answers again"'
    assert counts.lines == {"controller": 1}
