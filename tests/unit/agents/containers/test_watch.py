"""The progress and errors of the programs that the importer runs are reported."""

import re
import time

import pytest

from agents.containers.errors import ImageError
from agents.containers.watch import Progress, run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock. Return a list whose only item is the current time in seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_progress_of_long_operations_is_reported_every_fifteen_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("image x: downloading", 20_000_000_000)
    for now in range(60):
        clock[0] = float(now)
        progress.reached(now * 100_000_000)

    assert capsys.readouterr().err.splitlines() == [
        "container: image x: downloading: 500.0 MB of 20.0 GB in 5 s",
        "container: image x: downloading: 2.0 GB of 20.0 GB in 20 s",
        "container: image x: downloading: 3.5 GB of 20.0 GB in 35 s",
        "container: image x: downloading: 5.0 GB of 20.0 GB in 50 s",
    ]


def test_progress_without_a_known_total_has_only_the_bytes(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("image x: unpacking")
    clock[0] = 6.0
    progress.reached(1234)

    assert capsys.readouterr().err == "container: image x: unpacking: 1.2 kB in 6 s\n"


def test_bytes_that_a_program_writes_are_counted_while_it_runs() -> None:
    counts: list[int] = []

    run(["sh", "-c", "printf 12345; exec sleep 0.5"], subject="x", written=counts.append)

    assert counts[-1] == 5


def test_killed_program_is_reported_with_a_remedy() -> None:
    with pytest.raises(
        ImageError, match=r"^x: the program sh was killed: .* request more memory with --mem$"
    ):
        run(["sh", "-c", "kill -KILL $$"], subject="x")


@pytest.mark.parametrize(
    ("script", "works"),
    [
        ("echo no device 1 >&2; echo no device 2 >&2; exit 2", True),
        ("echo no device 1 >&2; echo damaged >&2; exit 2", False),
        ("echo no device 1 >&2; exit 1", False),
        ("exit 2", False),
    ],
)
def test_program_with_only_harmless_errors_has_succeeded(script: str, works: bool) -> None:
    command, harmless = ["sh", "-c", f"echo output; {script}"], re.compile(r"no device \d")

    if works:
        assert run(command, subject="x", harmless=harmless) == "output\n"
    else:
        with pytest.raises(ImageError):
            run(command, subject="x", harmless=harmless)
