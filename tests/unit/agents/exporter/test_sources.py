"""Slurm's programs, as they answer, refuse and hang."""

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
    """A folder of programs that are found before all others; sdiag answers as recorded."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path / "sdiag", f"cat {RECORDED / 'sdiag.json'}")
    return tmp_path


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def slurm(programs: Path, script: str = f"cat {RECORDED / 'snapshot.txt'}") -> Slurm:
    return Slurm(10, 10, [str(program(programs / "snapshot", script))])


def test_every_source_is_read_by_a_program(programs: Path) -> None:
    asked = slurm(programs)
    found = {
        source.name: series(source.read(5)) for source in (*asked.each_time(), *asked.in_turn())
    }

    assert found["cluster"]['slurm_jobs{state="running"}'] == 1
    assert found["scheduler"]["slurm_scheduler_cycles_total"] > 0
    assert found["reservations"]['slurm_reservation_nodes{reservation="course"}'] == 1
    assert found["licenses"]['slurm_licenses{license="cad"}'] == 10


def test_holes_in_arrays_are_asked_for_whole(programs: Path) -> None:
    with printed(["sh", "-c", "echo $SLURM_BITSTR_LEN"], 5) as output:
        assert output.read() == "0\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'snapshot: jobs: Unable to contact slurm controller' >&2; exit 1", "Unable to"),
        ("exit 3", "exit code 3"),
        ("printf 'job\\tRUNNING\\n'", "of 1 columns"),
        ("exec sleep 60", "no answer within 0.2 s"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(programs: Path, script: str, said: str) -> None:
    cluster, _ = slurm(programs, script).each_time()
    with pytest.raises(ReadError, match=said) as caught:
        cluster.read(0.2)

    assert str(caught.value).isprintable()


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    cluster, _ = Slurm(10, 10, [str(tmp_path / "snapshot")]).each_time()
    with pytest.raises(ReadError, match="snapshot: No such file"):
        cluster.read(1)


@pytest.mark.parametrize("answer", ["", "{}", '{"statistics": {"jobs_pending": "many"}}'])
def test_an_answer_of_another_form_is_refused(programs: Path, answer: str) -> None:
    program(programs / "sdiag", f"echo '{answer}'")
    _, scheduler = slurm(programs).each_time()
    with pytest.raises(ReadError, match="sdiag: "):
        scheduler.read(5)


def test_text_that_is_no_utf_8_breaks_nothing(programs: Path) -> None:
    row = "job\\tRUNNING\\tNone\\tmain\\t\\377lab\\t0\\t\\t0\\t1\\t\\t\\t\\t\\t0\\n"
    cluster, _ = slurm(programs, f"printf '{row}'").each_time()

    assert series(cluster.read(5))['slurm_account_jobs{account="\ufffdlab",state="running"}'] == 1


SIZE = "slurmstack_jail_size_bytes"


def names(found: Series) -> set[str]:
    """Volumes that series tell of."""
    return set(re.findall(rf'{SIZE}{{volume="(\w+)"}}', "\n".join(found)))


def test_the_jail_and_its_volumes_are_the_file_systems_at_their_paths(tmp_path: Path) -> None:
    found = series(Jail({"jail": str(tmp_path), "processes": "/proc"}).source().read(5))

    for name, path in (("jail", tmp_path), ("processes", Path("/proc"))):
        volume = os.statvfs(path)
        assert found[f'{SIZE}{{volume="{name}"}}'] == volume.f_blocks * volume.f_frsize
    assert found['slurmstack_jail_available_bytes{volume="jail"}'] > 0


def test_a_jail_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="No such file or directory") as caught:
        Jail({"jail": str(tmp_path / "none")}).source().read(5)

    assert not caught.value.rest


class Server:
    """Of a network file system; it may be away, and who asks then hangs until it is back."""

    def __init__(self, *paths: str) -> None:
        self.is_there = threading.Event()
        self.paths = paths
        """Those that it serves."""
        self.asked = 0

    def statvfs(self, path: str) -> os.statvfs_result:
        if path in self.paths:
            self.asked += 1
            assert self.is_there.wait(10)
        return os.statvfs(path)


def test_a_jail_that_hangs_costs_one_thread_and_is_read_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    server = Server(str(tmp_path))
    jail = Jail({"jail": str(tmp_path)}, server.statvfs)
    source = jail.source()
    said = set()
    for _ in range(3):
        with pytest.raises(ReadError) as caught:
            source.read(0.05)
        said.add(str(caught.value))

    assert said == {f"{tmp_path}: file system does not answer"}, "so that it is said once"
    assert server.asked == 1
    server.is_there.set()
    while jail.is_asking("jail"):
        time.sleep(0.001)
    assert names(series(source.read(5))) == {"jail"}
    assert server.asked == 2, "what came too late is not shown"


@pytest.mark.parametrize("hangs", ["jail", "homes", "scratch"])
def test_a_volume_that_hangs_takes_no_figures_of_others_along(tmp_path: Path, hangs: str) -> None:
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
        assert str(caught.value) == f"{paths[hangs]}: file system does not answer"

    assert server.asked == 1
    server.is_there.set()
    while jail.is_asking(hangs):
        time.sleep(0.001)
    assert names(series(source.read(5))) == paths.keys()


def test_volumes_that_hang_together_are_waited_for_together(tmp_path: Path) -> None:
    paths = {str(number): str(tmp_path / str(number)) for number in range(20)}
    server = Server(*paths.values())
    begun = time.monotonic()
    with pytest.raises(ReadError) as caught:
        Jail(paths, server.statvfs).source().read(0.05)

    assert time.monotonic() - begun < 0.5
    assert not caught.value.rest
    server.is_there.set()


def test_a_jail_that_hangs_does_not_keep_the_exporter_from_ending(tmp_path: Path) -> None:
    server = Server(str(tmp_path))
    before = set(threading.enumerate())
    with pytest.raises(ReadError):
        Jail({"jail": str(tmp_path)}, server.statvfs).source().read(0.05)

    (waiting,) = set(threading.enumerate()) - before
    assert waiting.daemon
    server.is_there.set()


def test_who_has_no_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert user_name(3_999_999_999) == "3999999999"


def test_once_prints_everything_and_says_by_its_exit_code_whether_it_was_told(
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
    told = capsys.readouterr()
    assert "sdiag: exit code 1" in told.err
    assert not [
        name
        for name in series(told.out.encode())
        if name.startswith(("slurm_job_node", "slurmstack_jail"))
    ]
