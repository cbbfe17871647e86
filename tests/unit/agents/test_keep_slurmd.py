"""slurmd restarts after a signal. Meanwhile, slurmd's port stays in use."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import keep_slurmd
from components import conventions as c
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as open_port:
        yield open_port


def keeper(command: list[str], *, jobs_run: bool = False) -> keep_slurmd.Keeper:
    return keep_slurmd.Keeper(command, lambda: jobs_run)


def first_ended_by(number: int, folder: Path) -> list[str]:
    """Return a command. A signal ends its first run. Its second run exits with code 3."""
    return ["sh", "-c", f"mkdir {folder}/run || exit 3; kill -{number} $$"]


def test_slurmd_restarts_after_a_signal(
    listener: socket.socket,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keep_slurmd, "PAUSE", 0)

    code = keeper(first_ended_by(signal.SIGSEGV, tmp_path)).run(listener)

    assert code == 3
    output = "slurmd was ended by signal 11; restarting slurmd; running jobs continue\n"
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("code", [0, 1])
def test_slurmd_does_not_restart_after_an_exit_while_idle(
    listener: socket.socket, code: int
) -> None:
    assert keeper(["sh", "-c", f"exit {code}"]).run(listener) == code


@pytest.mark.parametrize(("code", "why"), [(0, "was shut down"), (1, "failed with exit code 1")])
def test_slurmd_restarts_after_an_exit_while_jobs_run(
    listener: socket.socket,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    why: str,
) -> None:
    for pause in ("PAUSE", "PAUSE_AFTER_FAILURE"):
        monkeypatch.setattr(keep_slurmd, pause, 0)
    jobs_end = tmp_path / "jobs-end"
    command = ["sh", "-c", f"mkdir {tmp_path}/run && exit {code}; mkdir {jobs_end}; exit 3"]

    kept = keep_slurmd.Keeper(command, lambda: not jobs_end.exists())

    assert kept.run(listener) == 3
    assert capsys.readouterr().out == f"slurmd {why}; restarting slurmd; running jobs continue\n"


def test_running_slurmstepd_means_that_job_steps_run(tmp_path: Path) -> None:
    for number, name in (("1", "tini"), ("20", "slurmd"), ("self", "slurmstepd")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "comm").write_text(f"{name}\n")
    (tmp_path / "30").mkdir()

    assert not keep_slurmd.steps_run(tmp_path)
    (tmp_path / "30/comm").write_text("slurmstepd\n")
    assert keep_slurmd.steps_run(tmp_path)


def test_port_stays_in_use_between_two_starts_of_slurmd(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_slurmd, "PAUSE", 1)
    kept = keeper(first_ended_by(signal.SIGKILL, tmp_path))
    thread = threading.Thread(target=kept.run, args=[listener])
    thread.start()
    eventually("slurmd has started", (tmp_path / "run").exists)

    tries = 0
    while thread.is_alive():
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(listener.getsockname())
        tries += 1

    assert tries > 10


def test_slurmd_gets_the_open_port_as_standard_input(
    listener: socket.socket, tmp_path: Path
) -> None:
    script = (
        "import os, socket, sys\n"
        "with socket.socket(fileno=int(os.environ['SLURMD_RECONF_LISTEN_FD'])) as port:\n"
        "    open(sys.argv[1], 'w').write(str(port.getsockname()[1]))\n"
    )
    reported = tmp_path / "port"

    keeper([sys.executable, "-c", script, str(reported)]).run(listener)

    assert reported.read_text() == str(listener.getsockname()[1])


@pytest.mark.parametrize(("own", "expected"), [(-997, -897), (0, 100), (950, 999)])
def test_oom_score_of_slurmstepd_is_above_that_of_slurmd(
    tmp_path: Path, own: int, expected: int
) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text(f"{own}\n")

    assert keep_slurmd.slurmstepd_score(file) == expected


def test_slurmd_receives_the_oom_score_for_slurmstepd(
    listener: socket.socket, tmp_path: Path
) -> None:
    reported = tmp_path / "score"

    keeper(["sh", "-c", f"echo $SLURMSTEPD_OOM_ADJ >{reported}"]).run(listener)

    assert int(reported.read_text()) == keep_slurmd.slurmstepd_score()


def test_sigterm_to_the_container_ends_slurmd(tmp_path: Path) -> None:
    slurmd = (
        f"trap 'touch {tmp_path}/ended; exit 0' TERM; touch {tmp_path}/run;"
        " while :; do sleep 0.1; done"
    )
    program = [sys.executable, "-I", str(ROOT / "agents/keep_slurmd.py"), "0", "sh", "-c", slurmd]
    with subprocess.Popen(program) as kept:
        eventually("slurmd runs", (tmp_path / "run").exists)
        kept.terminate()
        assert kept.wait(20) == 0

    assert (tmp_path / "ended").exists()


@pytest.fixture
def sigterm() -> Iterator[None]:
    """Restore the handler that the program replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("sigterm")
def test_suspended_jobs_are_thawed_after_slurmd_has_ended(tmp_path: Path) -> None:
    job = "slurm_cpu-0/uid_1000/job_7"
    groups = [tmp_path / name for name in (".", "other", job, f"{job}/step_batch")]
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
        (group / "freezer.state").write_text("FROZEN\n")
    (tmp_path / job / "tasks").mkdir()
    seen = tmp_path / "seen"

    slurmd = ["sh", "-c", f"cp {groups[-1]}/freezer.state {seen}"]
    assert keep_slurmd.main(0, slurmd, tmp_path, lambda: False) == 0

    assert seen.read_text() == "FROZEN\n"
    states = [(group / "freezer.state").read_text().strip() for group in groups]
    assert states == ["FROZEN", "FROZEN", "THAWED", "THAWED"]


def test_node_without_the_hierarchy_of_version_1_thaws_nothing(tmp_path: Path) -> None:
    keep_slurmd.thaw(tmp_path / "freezer")

    assert not list(tmp_path.iterdir())


def test_worker_image_uses_the_slurmd_port_of_slurm_conf() -> None:
    script = (ROOT / "images/worker/slurmd").read_text()

    assert f"keep_slurmd.py {c.SLURMD_PORT} " in script
