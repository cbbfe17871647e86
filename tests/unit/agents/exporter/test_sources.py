"""Sources of metrics whose programs answer, fail or hang."""

import functools
import os
import re
import stat
import threading
import time
from pathlib import Path

import pytest

from agents.exporter.__main__ import main
from agents.exporter.sources import Jail, ReadError, Slurm, printed, user_name
from tests.support.metrics import Series, series
from tests.unit.agents.exporter.recordings import RECORDED


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first in PATH; its sdiag prints the recording."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path / "sdiag", f"cat {RECORDED / 'sdiag.json'}")
    return tmp_path


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def slurm(programs: Path, script: str = f"cat {RECORDED / 'snapshot.txt'}") -> Slurm:
    return Slurm(10, 10, [str(program(programs / "snapshot", script))])


def test_each_source_reads_the_output_of_its_program(programs: Path) -> None:
    asked = slurm(programs)
    found = {
        source.name: series(source.read(5)) for source in (*asked.each_time(), *asked.in_turn())
    }

    assert found["cluster"]['slurm_jobs{state="running"}'] == 1
    assert found["scheduler"]["slurm_scheduler_cycles_total"] > 0
    assert found["reservations"]['slurm_reservation_nodes{reservation="course"}'] == 1
    assert found["licenses"]['slurm_licenses{license="cad"}'] == 10


def test_slurm_programs_print_complete_task_lists_of_arrays(programs: Path) -> None:
    with printed(["sh", "-c", "echo $SLURM_BITSTR_LEN"], 5) as output:
        assert output.read() == "0\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'snapshot: jobs: Unable to contact slurm controller' >&2; exit 1", "Unable to"),
        ("exit 3", "exit code 3"),
        ("printf 'job\\tRUNNING\\n'", "with 1 columns"),
        ("exec sleep 60", "no answer within 0.2 s"),
    ],
)
def test_failed_read_is_reported_in_one_line(programs: Path, script: str, message: str) -> None:
    cluster, _ = slurm(programs, script).each_time()
    with pytest.raises(ReadError, match=message) as caught:
        cluster.read(0.2)

    assert str(caught.value).isprintable()


def test_missing_program_is_an_error(tmp_path: Path) -> None:
    cluster, _ = Slurm(10, 10, [str(tmp_path / "snapshot")]).each_time()
    with pytest.raises(ReadError, match="snapshot: No such file"):
        cluster.read(1)


@pytest.mark.parametrize("answer", ["", "{}", '{"statistics": {"jobs_pending": "many"}}'])
def test_answer_with_an_unexpected_structure_is_an_error(programs: Path, answer: str) -> None:
    program(programs / "sdiag", f"echo '{answer}'")
    _, scheduler = slurm(programs).each_time()
    with pytest.raises(ReadError, match="sdiag: "):
        scheduler.read(5)


def test_text_that_is_not_utf_8_is_accepted(programs: Path) -> None:
    row = "job\\tRUNNING\\tNone\\tmain\\t\\377lab\\t0\\t\\t0\\t1\\t\\t\\t\\t\\t0\\n"
    cluster, _ = slurm(programs, f"printf '{row}'").each_time()

    assert series(cluster.read(5))['slurm_account_jobs{account="\ufffdlab",state="running"}'] == 1


SIZE = "slurmstack_jail_size_bytes"


def names(found: Series) -> set[str]:
    """Return the names of the volumes that have a series."""
    return set(re.findall(rf'{SIZE}{{volume="(\w+)"}}', "\n".join(found)))


def test_size_of_a_volume_is_that_of_its_file_system(tmp_path: Path) -> None:
    found = series(Jail({"jail": str(tmp_path), "processes": "/proc"}).source().read(5))

    for name, path in (("jail", tmp_path), ("processes", Path("/proc"))):
        volume = os.statvfs(path)
        assert found[f'{SIZE}{{volume="{name}"}}'] == volume.f_blocks * volume.f_frsize
    assert found['slurmstack_jail_available_bytes{volume="jail"}'] > 0


def test_missing_jail_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="No such file or directory") as caught:
        Jail({"jail": str(tmp_path / "none")}).source().read(5)

    assert not caught.value.rest


class Server:
    """Fake server of a network file system. Calls hang while the server is unavailable."""

    def __init__(self, *paths: str) -> None:
        self.is_available = threading.Event()
        self.paths = paths
        """Paths that the server serves."""
        self.asked = 0

    def statvfs(self, path: str) -> os.statvfs_result:
        if path in self.paths:
            self.asked += 1
            assert self.is_available.wait(10)
        return os.statvfs(path)


def test_hanging_jail_blocks_only_one_thread(
    tmp_path: Path,
) -> None:
    server = Server(str(tmp_path))
    jail = Jail({"jail": str(tmp_path)}, server.statvfs)
    source = jail.source()
    messages = set()
    for _ in range(3):
        with pytest.raises(ReadError) as caught:
            source.read(0.05)
        messages.add(str(caught.value))

    assert messages == {
        f"{tmp_path}: the file system does not answer; check the server of this file system"
    }, "the message must stay the same, because the log omits repeated messages"
    assert server.asked == 1
    server.is_available.set()
    while jail.is_asking("jail"):
        time.sleep(0.001)
    assert names(series(source.read(5))) == {"jail"}
    assert server.asked == 2, "late answers are discarded"


@pytest.mark.parametrize("hangs", ["jail", "homes", "scratch"])
def test_hanging_volume_does_not_hide_other_volumes(tmp_path: Path, hangs: str) -> None:
    paths = {name: str(tmp_path / name) for name in ("jail", "homes", "scratch")}
    for path in paths.values():
        Path(path).mkdir()
    server = Server(paths[hangs])
    jail = Jail(paths, server.statvfs)
    source = jail.source()
    for _ in range(2):
        with pytest.raises(ReadError) as caught:
            source.read(0.05)
        assert names(series(caught.value.rest)) == paths.keys() - {hangs}
        assert str(caught.value) == (
            f"{paths[hangs]}: the file system does not answer; check the server of this file system"
        )

    assert server.asked == 1
    server.is_available.set()
    while jail.is_asking(hangs):
        time.sleep(0.001)
    assert names(series(source.read(5))) == paths.keys()


def test_hanging_volumes_are_awaited_in_parallel(tmp_path: Path) -> None:
    paths = {str(number): str(tmp_path / str(number)) for number in range(20)}
    server = Server(*paths.values())
    begun = time.monotonic()
    with pytest.raises(ReadError) as caught:
        Jail(paths, server.statvfs).source().read(0.05)

    assert time.monotonic() - begun < 0.5
    assert not caught.value.rest
    server.is_available.set()


def test_hanging_jail_does_not_delay_the_exit_of_the_process(tmp_path: Path) -> None:
    server = Server(str(tmp_path))
    before = set(threading.enumerate())
    with pytest.raises(ReadError):
        Jail({"jail": str(tmp_path)}, server.statvfs).source().read(0.05)

    (waiting,) = set(threading.enumerate()) - before
    assert waiting.daemon
    server.is_available.set()


def test_user_without_a_name_is_shown_as_uid() -> None:
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"


def test_option_once_prints_metrics_and_fails_if_a_source_failed(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = program(programs / "snapshot", f"cat {RECORDED / 'snapshot.txt'}")
    here = functools.partial(Slurm, snapshot=(str(path),))
    monkeypatch.setattr("agents.exporter.__main__.Slurm", here)

    monkeypatch.setenv("JAIL", str(programs))
    monkeypatch.setenv("VOLUMES", f"{programs.parent} /proc")

    assert main(["--once"]) == 0
    found = series(capsys.readouterr().out.encode())
    assert {name for name in found if name.startswith(SIZE)} == {
        f'{SIZE}{{volume="{name}"}}' for name in ("jail", programs.parent.name, "proc")
    }
    assert found["slurm_up"] == 1
    assert found['slurm_licenses{license="cad"}'] == 10
    assert found['slurm_jobs{state="running"}'] == 1

    monkeypatch.setenv("JOBS", "0")
    monkeypatch.delenv("JAIL")
    monkeypatch.delenv("VOLUMES")
    program(programs / "sdiag", "exit 1")
    assert main(["--once"]) == 1
    captured = capsys.readouterr()
    assert "sdiag: exit code 1" in captured.err
    assert not [
        name
        for name in series(captured.out.encode())
        if name.startswith(("slurm_job_node", "slurmstack_jail"))
    ]
