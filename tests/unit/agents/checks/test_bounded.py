"""`bounded.run` keeps the time limits of tasks, even if child processes hang."""

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from agents.checks import bounded
from agents.checks.bounded import Reading, Task

HANGS = ("sh", "-c", "trap '' TERM; sleep 60")


def timed(tasks: dict[str, Task], locks: Path) -> tuple[dict[str, Reading | None], float]:
    start = time.monotonic()
    found = bounded.run(tasks, locks)
    return found, time.monotonic() - start


def test_runner_returns_the_output_of_commands_and_functions(tmp_path: Path) -> None:
    found = bounded.run(
        {
            "command": (5, ("sh", "-c", "echo out; echo err >&2; exit 3")),
            "function": (5, lambda: "text"),
        },
        tmp_path,
    )

    assert found["command"] == Reading("out\n", "err\n", 3)
    assert found["function"] == Reading("text")


def test_missing_command_has_exit_code_127(tmp_path: Path) -> None:
    found = bounded.run({"lost": (5, ("no-such-command",))}, tmp_path)["lost"]

    assert found is not None
    assert found.code == bounded.MISSING


def test_exception_in_a_function_is_reported(tmp_path: Path) -> None:
    def fails() -> str:
        raise PermissionError(13, "Permission denied", "/dev/kmsg")

    found = bounded.run({"fails": (5, fails)}, tmp_path)["fails"]

    assert found is not None
    assert (found.code, "Permission denied: '/dev/kmsg'" in found.said) == (1, True)


def test_hanging_task_is_stopped_and_delays_no_other_task(tmp_path: Path) -> None:
    tasks: dict[str, Task] = {
        "hangs": (0.3, HANGS),
        "too": (0.3, HANGS),
        "good": (5, ("echo", "1")),
    }

    found, seconds = timed(tasks, tmp_path)

    assert found == {"hangs": None, "too": None, "good": Reading("1\n")}
    assert seconds < 2


def test_hanging_task_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    command = ("sh", "-c", f"sleep 60 & echo $! >{mark}; wait")

    for limit in (0.2, 1, 5):  # on a busy machine the shell needs longer to start its child
        bounded.run({"hangs": (limit, command)}, tmp_path)
        if mark.exists() and mark.read_text():
            break

    pid = int(mark.read_text())
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("the grandchild is still running")


def test_runner_does_not_wait_for_an_unkillable_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: spared.append(group))

    found, seconds = timed({"hangs": (0.2, ("sleep", "60"))}, tmp_path)

    assert found == {"hangs": None}
    assert seconds < 2
    os.kill(spared[0], signal.SIGKILL)


def test_task_does_not_start_while_its_previous_process_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda group, number: spared.append(group))
        bounded.run({"hangs": (0.2, ("sleep", "60"))}, tmp_path)
    mark = tmp_path / "begun"

    found = bounded.run({"hangs": (0.3, ("touch", str(mark))), "other": (5, ("true",))}, tmp_path)

    assert found == {"hangs": None, "other": Reading("")}
    assert not mark.exists()
    os.kill(spared[0], signal.SIGKILL)
    assert bounded.run({"hangs": (5, ("touch", str(mark)))}, tmp_path) == {"hangs": Reading("")}
    assert mark.exists()


def test_child_with_an_open_output_does_not_delay_the_task(tmp_path: Path) -> None:
    found, seconds = timed({"leaves": (5, ("sh", "-c", "echo 1; sleep 60 &"))}, tmp_path)

    assert found == {"leaves": Reading("1\n")}
    assert seconds < 2


def test_task_with_endless_output_is_stopped(tmp_path: Path) -> None:
    found, seconds = timed({"prints": (20, ("sh", "-c", "exec cat /dev/zero"))}, tmp_path)

    assert found == {"prints": None}
    assert seconds < 15


def test_hanging_child_does_not_keep_locks_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: spared.append(group))
    path = tmp_path / "pass"
    held = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    bounded.run({"hangs": (0.2, _sleep)}, tmp_path)
    os.close(held)

    again = os.open(path, os.O_RDWR)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.kill(spared[0], signal.SIGKILL)


def _sleep() -> str:
    time.sleep(60)
    return ""
