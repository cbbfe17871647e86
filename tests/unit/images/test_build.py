"""Inputs, output and errors of image builds, without Docker."""

import io
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from requests.exceptions import ConnectionError as NoConnection
from rich.console import Console

from images import build, tags
from tests.support.stack import settings


class Recorder:
    """Fake of the function that shows the steps of a build."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)


def test_build_context_is_reproducible_with_fixed_owners_and_modes() -> None:
    assert build.context("worker") == build.context("worker")
    with tarfile.open(fileobj=io.BytesIO(build.context("worker"))) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == list(tags.context_files("worker"))
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 0)}
    assert {member.mode for member in members} == {0o644, 0o755}


def test_nfs_server_image_is_built_only_if_stacks_use_it() -> None:
    served = {"server": {"machines": ["10.0.0.0/16"]}}

    assert "nfs" not in build.needed(settings())
    assert "nfs" in build.needed(settings(lambda values: values.update(jail=served)))


def test_build_arguments_are_the_parent_image_and_the_proxies() -> None:
    environment = {"HTTP_PROXY": "http://proxy:3128", "no_proxy": "", "PASSWORD": "x"}
    arguments = build.build_arguments("worker", "registry.example.com", environment)
    assert arguments == {
        "BASE": tags.reference("base", "registry.example.com"),
        "HTTP_PROXY": "http://proxy:3128",
    }
    assert build.build_arguments("debian", None, {}) == {}


def test_parent_images_are_built_first_and_once() -> None:
    assert build.closure(["worker", "login", "worker"]) == [
        *("debian", "base", "worker", "login"),
    ]


def test_age_of_old_debian_packages_is_highlighted() -> None:
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)

    assert build.age(now - timedelta(days=5), now) == (
        "Debian packages of the images: as of 2026-11-20, 5 days ago",
        "",
    )
    text, style = build.age(now - timedelta(days=31), now)
    assert "31 days ago: run `make snapshot` to use today's" in text
    assert style == "yellow"


def test_build_shows_each_step() -> None:
    record = Recorder()
    messages: list[dict[str, Any]] = [
        {"stream": "Step 1/2 : FROM debian\n"},
        {"stream": " ---> 0123456789ab\n"},
        {"status": "Pulling"},
        {"stream": "Step 2/2 : RUN make\n"},
        {"stream": "done\n"},
        {"aux": {"ID": "sha256:0123"}},
    ]
    build.follow("worker", messages, record)
    assert record.lines == ["step 1/2 FROM debian", "step 2/2 RUN make"]


def test_error_names_the_failed_step_exit_code_and_output() -> None:
    messages = [
        {"stream": "Step 1/2 : RUN apt-get update\n"},
        {"stream": "Get:1 trixie InRelease\n"},
        {"stream": "Step 2/2 : RUN make\n"},
        {"stream": " ---> Running in 0123456789ab\n"},
        {"stream": "cc chroot.c\n\x1b[91mchroot.c:1: er"},
        {"stream": "ror\n\x1b[0m"},
        {"stream": "Removing intermediate container 0123456789ab\n"},
        {"error": "The command '/bin/sh -c make' returned a non-zero code: 2"},
    ]
    with pytest.raises(build.BuildError) as caught:
        build.follow("worker", messages, Recorder())
    assert (
        str(caught.value)
        == "image 'worker', step 2/2 RUN make: the command of this step ended with exit code 2"
    )
    assert caught.value.output == "cc chroot.c\nchroot.c:1: error"


def test_build_failure_before_the_first_step_is_reported() -> None:
    messages = [{"error": "dockerfile parse error\nline 1"}]
    with pytest.raises(build.BuildError, match="before the first step: dockerfile parse error"):
        build.follow("worker", messages, Recorder())


class Registry:
    """A Docker client whose pushes return the given messages."""

    def __init__(self, *messages: dict[str, str]) -> None:
        self.api = self
        self._messages = messages

    def push(self, *_: object, **__: object) -> Iterator[dict[str, str]]:
        return iter(self._messages)


def test_error_of_a_refused_push_names_image_and_remedy() -> None:
    client: Any = Registry({"status": "Preparing"}, {"error": "denied: requested access"})
    with pytest.raises(
        build.BuildError, match=r"cannot push the image r/base:0: denied.*docker login"
    ):
        build.push(client, "r/base:0", Recorder())


def test_error_for_an_unreachable_docker_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert build.main(["--build-only"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: no Docker engine responds at DOCKER_HOST=unix://{tmp_path}")
    assert "unset DOCKER_HOST" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--image", "wroker"], "image 'wroker': there is no such image; expected one of"),
        (["--stack", "nowhere"], "no stack 'nowhere'"),
    ],
)
def test_wrong_argument_is_reported_in_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(arguments) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {expected}")


def test_reason_of_an_error_is_its_innermost_cause() -> None:
    error = NoConnection("('Connection aborted.', …)")
    error.__cause__ = PermissionError(13, "Permission denied")
    assert build.reason(error) == "Permission denied"
    assert build.reason(APIError("Conflict", explanation="disk full")) == "disk full"


def test_output_to_a_pipe_has_one_plain_line_per_step() -> None:
    output = io.StringIO()
    report = build.Report(Console(file=output, force_terminal=False, width=40))
    with report, report.doing("worker") as record:
        record("step 1/2 RUN apt-get update \\\n && apt-get install [a] " + "x" * 200)
        record("step 2/2 RUN make")
    first, second = output.getvalue().splitlines()
    assert "worker: step 1/2 RUN apt-get update \\ && apt-get install [a] x" in first
    assert first.endswith("…")
    assert second.endswith("worker: step 2/2 RUN make")
    assert "\x1b" not in output.getvalue()


def test_terminal_keeps_finished_lines_and_clears_progress_lines() -> None:
    output = io.StringIO()
    report = build.Report(Console(file=output, force_terminal=True, width=80))
    with report:
        with report.doing("worker") as record:
            record("step 1/2 RUN make")
        report.line("worker: built", "green")
    live, kept = output.getvalue().split("worker: built")
    assert "step 1/2 RUN make" in live
    assert "step 1/2" not in kept
