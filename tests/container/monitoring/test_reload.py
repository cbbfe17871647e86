"""Prometheus and Alertmanager, with the commands of a stack, reload changed files."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import httpx
import pytest
from docker.models.containers import Container

from components import conventions as c
from components.monitoring import monitoringconf
from tests.support import open_shells
from tests.support.containers import Start, put
from tests.support.graph import Graph, opened, pod, record
from tests.support.stack import config
from tests.support.waiting import eventually

RUN = '"$@" >/tmp/log 2>&1 & echo $! >/tmp/pid; wait $!; echo $? >/tmp/code'


@dataclass(frozen=True)
class Daemon:
    """Prometheus or Alertmanager in a container, with files as the kubelet mounts them."""

    container: Container
    command: list[str]
    folder: str
    file: str
    """The file that the tests edit."""
    port: int
    shows: str
    """Path of the page that shows the loaded configuration."""
    words: tuple[str, str]
    """A setting in this file, with its value before and after an edit."""
    files: dict[str, str]
    loaded: str
    """Metric that reports whether the last load succeeded."""
    versions: Iterator[int] = field(default_factory=lambda: count(1))

    def run(self, script: str) -> str:
        code, text = open_shells.run(self.container, script)
        assert code == 0, f"{script}: exit code {code}; output: {text}"
        return text

    def install(self, edited: str | None = None) -> None:
        """Replace all files atomically, as the kubelet does."""
        version = f"..{next(self.versions)}"
        files = {**self.files, **({self.file: edited} if edited else {})}
        put(self.container, {f"{self.folder}/{version}/{name}": files[name] for name in files})
        links = "; ".join(f"ln -sfn ..data/{name} {name}" for name in files)
        self.run(f"cd {self.folder}; {links}; ln -s {version} ..new; mv -T ..new ..data")

    @property
    def edited(self) -> str:
        before, after = self.words
        assert before in self.files[self.file]
        return self.files[self.file].replace(before, after)

    def start(self) -> None:
        self.run(f"rm -f /tmp/code; install -d -o {c.MONITORING_ID} /var/lib/monitoring")
        command = ["sh", "-c", RUN, "sh", *self.command]
        self.container.exec_run(command, user=str(c.MONITORING_ID), detach=True)

    def exit_code(self) -> int:
        """Wait until the daemon has exited, and return its exit code."""
        eventually(
            "the daemon has exited", lambda: bool(self.run("cat /tmp/code 2>/dev/null || :"))
        )
        return int(self.run("cat /tmp/code"))

    def get(self, path: str) -> str:
        """Return the response body; empty if the daemon does not answer."""
        self.container.reload()
        (network,) = self.container.attrs["NetworkSettings"]["Networks"].values()
        url = f"http://{network['IPAddress']}:{self.port}{path}"
        try:
            return httpx.get(url, trust_env=False).text
        except httpx.TransportError:
            return ""

    def uses(self, word: str) -> bool:
        return word in self.get(self.shows)

    def reports_load(self, value: int) -> bool:
        return f"\n{self.loaded} {value}\n" in self.get("/metrics")


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(lambda values: None))


@pytest.fixture(scope="module")
def container(start_container: Start) -> Container:
    return start_container("monitoring")


@pytest.fixture(params=["prometheus", "alertmanager"])
def daemon(request: pytest.FixtureRequest, container: Container, graph: Graph) -> Iterator[Daemon]:
    commands = {
        one["name"]: one["command"] for one in pod(graph, "monitoring-server")["containers"]
    }
    files = graph.one("monitoring-config").inputs["data"]
    alertmanager = monitoringconf.ALERTMANAGER_FILE
    daemon = {
        "prometheus": Daemon(
            container,
            commands["prometheus"],
            monitoringconf.MONITORING_ETC,
            monitoringconf.PROMETHEUS_FILE,
            c.PROMETHEUS_PORT,
            "/api/v1/status/config",
            ("cluster: test", "cluster: other"),
            files,
            "prometheus_config_last_reload_successful",
        ),
        "alertmanager": Daemon(
            container,
            commands["alertmanager"],
            monitoringconf.ALERTMANAGER_ETC,
            alertmanager,
            c.ALERTMANAGER_PORT,
            "/api/v2/status",
            ("repeat_interval: 12h", "repeat_interval: 13h"),
            opened(graph.one("monitoring-alertmanager").inputs["stringData"]),
            "alertmanager_config_last_reload_successful",
        ),
    }[request.param]
    yield daemon
    daemon.run(
        f"kill $(cat /tmp/pid) 2>/dev/null; while [ ! -e /tmp/code ]; do sleep 0.1; done; "
        f"rm -rf {daemon.folder} /var/lib/monitoring"
    )


def test_edited_files_apply_without_a_restart(daemon: Daemon) -> None:
    before, after = daemon.words
    daemon.install()
    daemon.start()
    eventually("the daemon uses its files", lambda: daemon.uses(before))

    daemon.install(daemon.edited)

    eventually("the daemon uses the edited files", lambda: daemon.uses(after))
    eventually("the daemon reports a successful load", lambda: daemon.reports_load(1))
    daemon.run("kill $(cat /tmp/pid)")
    assert daemon.exit_code() == 0


def test_invalid_files_leave_the_old_configuration_active(
    daemon: Daemon,
) -> None:
    before, after = daemon.words
    daemon.install()
    daemon.start()
    eventually("the daemon uses its files", lambda: daemon.uses(before))

    daemon.install("none: [")

    eventually("the daemon reports a failed load", lambda: daemon.reports_load(0))
    assert daemon.uses(before)
    daemon.install(daemon.edited)
    eventually("the daemon uses the corrected files", lambda: daemon.uses(after))
    eventually("the daemon reports a successful load", lambda: daemon.reports_load(1))


def test_daemon_with_invalid_files_exits_and_logs_the_reason(daemon: Daemon) -> None:
    daemon.install("none: [")
    daemon.start()

    assert daemon.exit_code() != 0
    assert f"{daemon.folder}/{daemon.file}" in daemon.run("cat /tmp/log")
