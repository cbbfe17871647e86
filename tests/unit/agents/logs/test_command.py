"""The log agent runs with a fake API server and a fake receiver, both on loopback."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.kubernetes import Streams
from agents.logs import __main__ as command
from agents.logs import follow, metrics, send
from agents.logs.lines import Line
from agents.logs.pods import OURS, Api
from agents.logs.sent import LOOK_BACK
from components import conventions as c
from components import pods
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.unit.agents.logs.world import WITHIN, Kubernetes, Receiver

FAR = LOOK_BACK / 1e9 + 60
"""Age in seconds of lines that an agent without its state file does not send."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (follow, send):
        monkeypatch.setattr(module, "PAUSE", 0.02)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(send, "GATHER", 0.02)
    monkeypatch.setattr(send, "LAST", 1)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> metrics.Counts:
    """Return the counts that all agents of a test share."""
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
    """API server, receiver, and an agent that runs during a scenario."""

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
        """Run the agent during the scenario. Return the seconds from SIGTERM to the agent's end."""
        problems: list[BaseException] = []
        ended, signalled = threading.Event(), [0.0]

        def act() -> None:
            try:
                scenario()
            except BaseException as problem:
                problems.append(problem)
            signalled[0] = time.monotonic()
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

        async def agent() -> None:
            api = Api("slurm", Streams(self.api, lambda: "token"))
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
        return time.monotonic() - signalled[0]


@pytest.fixture
def stack(
    kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts, tmp_path: Path
) -> Iterator[Stack]:
    one = Stack(kubernetes, receiver, tmp_path)
    with kubernetes.serve() as one.api, receiver.serve() as one.endpoint:
        yield one


def numbered(first: int, last: int) -> list[str]:
    return [f"slurmctld: line {number}" for number in range(first, last)]


def test_pod_selector_matches_the_labels_of_deployed_pods() -> None:
    (own,) = pods.labels(c.LOGS).items() - pods.LABELS.items()
    (ours,) = pods.LABELS.items()
    assert f"{ours[0]}={ours[1]},{own[0]}!={own[1]}" == OURS


def test_each_line_arrives_once_and_in_order_with_its_source(
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


def test_lines_below_the_level_are_not_sent(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    stack.environment["LEVEL"] = "warn"
    lines = ["slurmctld: debug:  a", "slurmctld: b", "slurmctld: warning: c", "slurmctld: error: d"]
    kubernetes.write("controller-1", "slurmctld", *lines)

    stack.during(lambda: receiver.has(lines[-1]))

    assert receiver.texts() == lines[2:]


def test_lines_of_pods_that_are_created_later_are_sent(
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
        eventually("a deleted pod is no longer followed", lambda: counts.containers == 2)

    stack.during(scenario)

    assert counts.cut == 0


def test_metric_counts_containers_deleted_before_their_log_was_read(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    kubernetes.make("cpu-0", "worker", "slurmd")
    kubernetes.write("cpu-0", "slurmd", "slurmd: up")

    def scenario() -> None:
        receiver.has("slurmd: up")
        with kubernetes.news:
            kubernetes.cut("cpu-0", "slurmd")
            kubernetes.delete("cpu-0")
        eventually("the container is counted", lambda: counts.cut == 1)

    stack.during(scenario)

    assert counts.containers == 2


def test_lines_of_a_pod_that_reuses_a_name_are_sent(
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


def test_agent_sends_the_last_lines_before_a_container_restart(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        for number in range(5):
            kubernetes.write("controller-1", "slurmctld", f"slurmctld: fatal: {number}")
            kubernetes.restart("controller-1", "slurmctld")
        kubernetes.write("controller-1", "slurmctld", "slurmctld: up")
        receiver.has("slurmctld: up", "slurmctld: fatal: 4")

    stack.during(scenario)


def test_new_agent_sends_the_last_lines_before_an_earlier_restart(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.write("controller-1", "slurmctld", "slurmctld: fatal: out of room")
    kubernetes.restart("controller-1", "slurmctld")
    kubernetes.write("controller-1", "slurmctld", "slurmctld: up")

    stack.during(lambda: receiver.has("slurmctld: up"))

    assert receiver.texts() == ["slurmctld: fatal: out of room", "slurmctld: up"]


def test_complete_log_of_an_ended_container_is_not_requested_again(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.make("job-x", "accounts", "accounts")
    kubernetes.write("job-x", "accounts", "done")

    def requests_for_job() -> int:
        return sum(one["pod"] == "job-x" for one in kubernetes.asked)

    def scenario() -> None:
        receiver.has("done")
        kubernetes.end("job-x", "accounts", "ended")
        receiver.has("ended")
        eventually("the agent requests the log after the end", lambda: requests_for_job() >= 2)
        kubernetes.write("controller-1", "slurmctld", *numbered(0, 3))
        receiver.has("slurmctld: line 2")
        asked = requests_for_job()
        time.sleep(0.5)
        assert requests_for_job() == asked

    stack.during(scenario)

    assert receiver.texts("accounts") == ["done", "ended"]


def test_broken_connection_neither_loses_nor_repeats_lines(
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


def test_lines_are_sent_even_if_the_clock_is_set_back(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    def scenario() -> None:
        kubernetes.write("controller-1", "slurmctld", "slurmctld: before")
        receiver.has("slurmctld: before")
        kubernetes.write("controller-1", "slurmctld", "slurmctld: after", ago=30)
        receiver.has("slurmctld: after")

    stack.during(scenario)


# --- Failed starts -------------------------------------------------------------------------------


def test_missing_cluster_credentials_are_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESPACE", "slurm")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert command.main() == 1
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith(
        'level=error msg="the log agent cannot start: Kubernetes: credentials: '
    )


@pytest.mark.parametrize("text", [None, "no certificates"])
def test_invalid_certificates_are_reported_in_one_line(
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
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith('level=error msg="the log agent cannot start: monitoring.logs.ca: ')


# --- Receivers that are unavailable or refuse lines ----------------------------------------------


def test_receiver_gets_all_lines_after_an_outage(
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
            eventually("no line waits", lambda: counts.waiting_since is None)

    with kubernetes.serve() as stack.api:
        stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 20)
    output = capsys.readouterr().err.splitlines()
    assert len(output) <= 3, "one or two lines about the outage, and one about its end"
    assert output[0].startswith(f'level=error msg="{stack.endpoint}')
    assert output[-1] == f'level=info msg="{stack.endpoint}/otlp: the receiver accepts lines again"'


@pytest.mark.parametrize("status", [429, 500, 503])
def test_agent_retries_when_the_receiver_asks_it_to_wait(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts, status: int
) -> None:
    receiver.status = status
    receiver.headers_out = {"Retry-After": "0"}
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))

    def scenario() -> None:
        eventually("the agent retries", lambda: receiver.requests >= 3)
        receiver.status = 200
        receiver.has("slurmctld: line 9")

    stack.during(scenario)

    assert receiver.texts() == numbered(0, 10)
    assert counts.refused == 0


@pytest.mark.parametrize("status", [400, 401, 413, 301])
def test_refused_lines_are_counted_and_logged_once_and_not_resent(
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
            eventually("the line is refused", lambda: counts.refused > number)  # noqa: B023
        receiver.status = 200
        kubernetes.write("controller-1", "slurmctld", "slurmctld: taken")
        receiver.has("slurmctld: taken")

    stack.during(scenario)

    assert receiver.texts() == ["slurmctld: taken"]
    assert counts.refused == 3
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 2
    assert f"the receiver refuses log lines: HTTP {status} no such thing" in output[0]


def test_lines_refused_in_an_accepted_request_are_counted(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, counts: metrics.Counts
) -> None:
    receiver.body = b'{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}}'
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 3))

    def scenario() -> None:
        receiver.has("slurmctld: line 2")
        eventually("the refused line is counted", lambda: counts.refused == 1)

    stack.during(scenario)


def test_agent_stops_reading_while_its_buffer_is_full(
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
        eventually("the agent retries", lambda: receiver.requests >= 3)
        assert len(handed) < 40, "the agent reads no more lines than fit into its buffer"
        receiver.status = 200
        receiver.has("slurmctld: line 199")

    stack.during(scenario)

    assert receiver.texts("slurmctld") == numbered(0, 200)


# --- Headers -------------------------------------------------------------------------------------


def test_changed_header_file_of_the_secret_takes_effect(
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


def test_invalid_header_delays_lines_and_its_value_is_not_logged(
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
    output: list[str] = []

    def is_reported() -> bool:
        output.append(capsys.readouterr().err)
        return "headers_secret: the value of 'Authorization' must be one line" in "".join(output)

    def scenario() -> None:
        eventually("the agent reports the header", is_reported)
        value.write_text("Bearer one")
        receiver.has("slurmctld: a")

    stack.environment["STATE"] = str(tmp_path / ".sent.json")
    stack.during(scenario)

    assert "Bearer" not in "".join(output)


# --- Stop and start ------------------------------------------------------------------------------


def test_stopped_agent_sends_buffered_lines_within_seconds(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "GATHER", 1)
    monkeypatch.setattr(send, "LAST", 10)

    def scenario() -> None:
        eventually("the container is followed", lambda: len(kubernetes.asked) >= 2)
        kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
        time.sleep(0.3)
        assert receiver.texts() == []

    took = stack.during(scenario)

    assert receiver.texts() == numbered(0, 10)
    assert took < send.LAST


def test_stopped_agent_does_not_wait_for_an_unavailable_receiver(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "LAST", 0.3)
    receiver.status = 503
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")

    took = stack.during(
        lambda: eventually("the agent tries to send", lambda: receiver.requests >= 1)
    )

    assert took < 5


def test_restarted_agent_continues_where_it_stopped(
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

    assert first == numbered(0, 10), "lines older than LOOK_BACK are not sent"
    # The agent knows only the time of the last line. Another line may have the same time, so the
    # agent repeats the last line.
    assert receiver.texts("slurmctld") == [*first, first[-1], *numbered(10, 20)]


def test_agent_that_restarts_during_an_outage_loses_no_lines(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
    receiver.status = 503
    with monkeypatch.context() as patch:
        patch.setattr(send, "LAST", 0.3)
        stack.during(lambda: eventually("the agent tries to send", lambda: receiver.requests >= 2))
    receiver.status = 200
    stack.during(lambda: receiver.has("slurmctld: line 9"))

    assert receiver.texts("slurmctld") == numbered(0, 10)


def test_agent_that_lost_its_state_file_loses_no_lines(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver
) -> None:
    kubernetes.write("controller-1", "slurmctld", *numbered(0, 10))
    stack.during(lambda: receiver.has("slurmctld: line 9"))
    Path(stack.environment["STATE"]).unlink()
    kubernetes.write("controller-1", "slurmctld", *numbered(10, 20))
    stack.during(lambda: receiver.has("slurmctld: line 19"))

    assert set(numbered(0, 20)) == set(receiver.texts("slurmctld"))


def test_broken_state_file_is_reported_and_replaced(
    stack: Stack, kubernetes: Kubernetes, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(stack.environment["STATE"]).write_text('{"begun": ')
    kubernetes.write("controller-1", "slurmctld", "slurmctld: a")

    stack.during(lambda: receiver.has("slurmctld: a"))

    assert "sends the lines of the last 900 s" in capsys.readouterr().err


def test_agent_waits_while_kubernetes_is_unavailable(
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

    output = capsys.readouterr().err.splitlines()
    assert output[0].startswith('level=error msg="Kubernetes: GET /api/v1/namespaces/slurm/pods: ')
    assert output[1] == 'level=info msg="Kubernetes again sends the list of pods"'
    assert counts.lines == {"controller": 1}
