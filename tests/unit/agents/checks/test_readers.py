"""Readers are functions that return the node's state as text, in the format that checks expect."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from agents.checks import infiniband, readers, slurm, system
from agents.checks.judging import EARLIER, UnknownError, jobs
from agents.checks.readers import READERS
from agents.checks.registry import CHECKS
from agents.node import FOLDER, write
from components import conventions as c
from tests.support.recordings import recorded


def files(root: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_checks_use_exactly_the_readers_that_exist() -> None:
    assert {name for check in CHECKS.values() for name in check.reads} == set(READERS)


def test_one_run_of_all_checks_takes_less_than_ten_seconds() -> None:
    longest = max(reader.seconds for reader in READERS.values())

    assert longest + slurm._READ + slurm._WRITE < 10


def test_paths_of_the_readers_match_the_mounts_of_workers() -> None:
    assert str(readers.JAIL) == c.JAIL
    assert f"{readers.JAIL}/{readers.MARKER}" == c.JAIL_MARKER
    assert str(readers.SCRATCH) == c.WORKER_SCRATCH
    assert str(readers.SETTINGS) == f"{c.NODE_SETTINGS}/{c.NODE_CHECKS}"
    assert {c.WORKER_SPOOL, c.WORKER_SCRATCH} <= set(CHECKS["disk"].limits["paths"])  # type: ignore[arg-type]


def test_disk_usage_is_computed_as_in_df(tmp_path: Path) -> None:
    text = readers.disks({"disk": {"paths": (str(tmp_path), "/proc")}})

    mine, proc = (line.split() for line in text.splitlines())
    assert mine[2:] == ["rw", str(tmp_path)]
    assert 0 <= int(mine[0]) <= 100
    assert proc[0] == "0"


MEMINFO = "MemTotal:       32768000 kB\nMemAvailable:   20480000 kB\n"


def test_memory_of_the_pod_is_read_from_both_cgroup_versions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    group = "sys/fs/cgroup"
    gib = 1024**3
    files(
        two,
        {
            "proc/meminfo": MEMINFO,
            f"{group}/memory.max": f"{gib}\n",
            f"{group}/memory.current": f"{gib // 2}\n",
            f"{group}/memory.stat": f"anon 5\ninactive_file {gib // 8}\n"
            f"active_file {gib // 16}\nslab_reclaimable {gib // 16}\n",
        },
    )
    files(
        one,
        {
            "proc/meminfo": MEMINFO,
            f"{group}/memory/memory.limit_in_bytes": f"{gib}\n",
            f"{group}/memory/memory.usage_in_bytes": f"{gib // 2}\n",
            f"{group}/memory/memory.stat": f"cache 5\ntotal_inactive_file {gib // 8}\n"
            f"total_active_file {gib // 8}\n",
        },
    )

    expected = "limit 1024\nfree 768\n"
    assert readers.memory({}, one) == readers.memory({}, two) == expected


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)])
def test_pod_without_a_memory_limit_has_the_machines_memory(limit: str, tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    files(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            f"{group}/memory.max": limit,
            f"{group}/memory.current": "5\n",
            f"{group}/memory.stat": "inactive_file 1\n",
        },
    )

    assert readers.memory({}, tmp_path) == "limit 32000\nfree 20000\n"


def process(
    pid: int, name: str, state: str = "S", start: int = 10, uid: int = 0, pending: int = 0
) -> dict[str, str]:
    """Return a process's files in /proc. The process has made 12 voluntary context switches."""
    numbers = " ".join(["0"] * 17)
    return {
        f"{pid}/stat": f"{pid} ({name}) {state} 1 {numbers} {start} 0\n",
        f"{pid}/cgroup": "0::/\n",
        f"{pid}/status": f"Name:\tx\nState:\t{state} (so)\nUid:\t{uid}\t0\t0\t0\n"
        f"SigPnd:\t{0:016x}\nShdPnd:\t{pending:016x}\nvoluntary_ctxt_switches:\t12\n",
    }


KILLED = 1 << 8
"""Mask of pending signals in which only SIGKILL is set."""


def test_process_list_contains_job_steps_and_blocked_processes(tmp_path: Path) -> None:
    proc, state = tmp_path / "proc", tmp_path / "state"
    state.mkdir()
    files(
        proc,
        {
            **process(1, "tini"),
            **process(42, "slurmstepd", start=20),
            "42/cmdline": "slurmstepd: [7.batch]\0",
            **process(50, "a (b) c", "D", 30, uid=2000, pending=KILLED),
            "self/stat": "no number, no process",
        },
    )

    text = readers.processes({}, proc, state)

    assert jobs(text) == {"7"}
    rows = [line.split() for line in text.splitlines()]
    assert [row[0] for row in rows] == ["1", "42", "50"]
    assert rows[2][2:7] == ["2000", "D", "30", "12", "a_(b)_c"]


@pytest.mark.parametrize(
    ("uid", "state", "pending", "woken"),
    [(2000, "D", 0, "-"), (2000, "D", KILLED, "12"), (0, "D", 0, "12"), (0, "S", KILLED, "-")],
    ids=[
        "blocked user process that has received no SIGKILL, such as in vfork",
        "blocked user process that has received SIGKILL",
        "blocked root process",
        "process that is not blocked",
    ],
)
def test_process_that_sigkill_would_end_does_not_count_as_blocked(
    tmp_path: Path, uid: int, state: str, pending: int, woken: str
) -> None:
    files(tmp_path, process(50, "python3", state, uid=uid, pending=pending))

    assert readers.processes({}, tmp_path, tmp_path).split()[5] == woken


@pytest.mark.parametrize(
    ("group", "file", "content"),
    [
        ("6:freezer:/kubepods/pod1/slurm_cpu-1/job_4", "freezer/slurm_cpu-1/job_4/freezer.state",
         "FROZEN\n"),
        ("0::/system.slice/job_4", "system.slice/job_4/cgroup.events", "populated 1\nfrozen 1\n"),
    ],
    ids=["version 1", "version 2"],
)  # fmt: skip
def test_process_of_a_suspended_job_does_not_count_as_blocked(
    tmp_path: Path, group: str, file: str, content: str
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    files(proc, {**process(50, "sleep", "D"), "50/cgroup": f"9:cpu:/x\n{group}\n"})

    def woken() -> str:
        return readers.processes({}, proc, tmp_path, groups).split()[5]

    assert woken() == "12"
    files(groups, {file: content})
    assert woken() == "-"
    files(groups, {file: "THAWED\npopulated 1\nfrozen 0\n"})
    assert woken() == "12"


@pytest.mark.parametrize("name", ["slurmstepd", "a\nb 2 0 D", "a\fb", "a\x1cb", "\udcff"])
def test_process_names_cannot_forge_rows(tmp_path: Path, name: str) -> None:
    command = "slurmstepd: [7.0]\n666 2 0 D 5 9 kworker x\f99\n"
    (found := process(50, "NAME", uid=2000)).update({"50/cmdline": command})
    files(tmp_path, found)
    stat = (tmp_path / "50/stat").read_bytes().replace(b"NAME", os.fsencode(name))
    (tmp_path / "50/stat").write_bytes(stat)

    text = readers.processes({}, tmp_path, tmp_path)

    assert len(text.splitlines()) == 1
    assert EARLIER not in text
    assert jobs(text) == set()


def test_process_list_contains_the_test_itself(tmp_path: Path) -> None:
    text = readers.processes({}, state=tmp_path)

    assert any(line.startswith(f"{os.getpid()} ") for line in text.splitlines())


def test_earlier_reading_is_replaced_only_after_the_minimum_interval(tmp_path: Path) -> None:
    proc, state = tmp_path / "proc", tmp_path / "state"
    state.mkdir()
    files(proc, process(1, "first"))
    first = readers.processes({}, proc, state)
    files(proc, process(1, "second"))
    second = readers.processes({}, proc, state)
    os.utime(state / "processes", (0, time.time() - 60))
    third = readers.processes({}, proc, state)
    fourth = readers.processes({}, proc, state)

    assert EARLIER not in first
    assert "first" in second.partition(EARLIER)[2]
    assert third.partition(EARLIER)[2].startswith("60\n")
    assert "first" in third.partition(EARLIER)[2]
    assert "second" in fourth.partition(EARLIER)[2]


def test_values_of_ports_are_read_unchanged(tmp_path: Path) -> None:
    for line in recorded("infiniband-h100").splitlines():
        device, port, name, value = line.split(None, 3)
        folder = "" if name in infiniband.VALUES else "counters/"
        files(tmp_path / "class", {f"{device}/ports/{port}/{folder}{name}": f"{value}\n"})

    text = readers.ports({}, tmp_path / "class", tmp_path)

    assert sorted(text.splitlines()) == sorted(recorded("infiniband-h100").splitlines())
    assert infiniband.link(text, ports=3, min_gbits=400) is None


# --- The jail ------------------------------------------------------------------------------------


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    files(tmp_path, {f"jail/{readers.MARKER}": "3\n", "settings": "{}"})
    for path in (tmp_path / "jail" / readers.MARKER, tmp_path / "settings"):
        os.utime(path, (0, time.time() - 7200))
    return tmp_path / "jail"


def read(jail: Path, ahead: float = 0.0) -> str:
    return readers.jail({}, jail, jail.with_name("settings"), lambda: time.time() - ahead)


def test_jail_passes_only_with_the_expected_generation(jail: Path) -> None:
    text = read(jail)

    assert system.jail(text, generation=3) is None
    assert system.jail(text, generation=4) == (
        "the jail has generation 3, but 'jail.refresh' is 4; check the Job that populates the jail"
    )
    assert system.clock(text, max_offset=0.1) is None


def test_clock_ahead_of_or_behind_the_storage_is_detected(jail: Path) -> None:
    found = system.clock(read(jail, ahead=30), max_offset=2)
    assert str(found).startswith(
        "the node's clock is -30.0 s off the clock of the jail's storage; check"
    )
    found = system.clock(read(jail, ahead=-30), max_offset=2)
    assert str(found).startswith(
        "the node's clock is +30.0 s off the clock of the jail's storage; check"
    )


def test_unpopulated_jail_gives_empty_output(tmp_path: Path) -> None:
    assert readers.jail({}, tmp_path, tmp_path) == ""


def test_unwritable_jail_fails_with_the_kernels_message(jail: Path) -> None:
    (jail / readers.NODES).write_text("a file in place of the folder")

    assert system.jail(read(jail), generation=3) == (
        "the node cannot write to the jail: File exists; check the mount options and the storage "
        "of the jail's volume"
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_jail_does_not_fail_the_node(
    jail: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(code, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        text = read(jail)

    assert system.jail(text, generation=3) is None
    with pytest.raises(UnknownError):
        system.clock(text, max_offset=2)


def test_each_node_writes_its_own_file_in_the_jail(
    jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("cpu-0", "cpu-1"):
        monkeypatch.setenv("SLURMD_NODENAME", node)
        read(jail)

    assert sorted(path.name for path in (jail / readers.NODES).iterdir()) == ["cpu-0", "cpu-1"]


def test_directories_of_jobs_are_reported_with_their_age(tmp_path: Path) -> None:
    files(
        tmp_path, {f"scratch/{readers.JOBS}/41.2000/tmp/x": "", f"shm/{readers.JOBS}/42.2000/x": ""}
    )
    os.utime(tmp_path / "scratch" / readers.JOBS / "41.2000", (0, time.time() - 900))

    text = readers.leftovers({}, tmp_path / "scratch", tmp_path / "shm")

    found = [line.split() for line in text.splitlines() if line.startswith("job")]
    assert [(int(age) // 100, name) for _, age, name in found] == [(9, "41.2000"), (0, "42.2000")]


def test_gres_reader_returns_the_file_that_the_node_wrote(tmp_path: Path) -> None:
    assert readers.gres({}, tmp_path / "gres.conf") == ""
    write({"gres.conf": "AutoDetect=off\n"}, tmp_path)

    assert readers.gres({}, tmp_path / "gres.conf") == "AutoDetect=off\n"
    assert readers.GRES == FOLDER / "gres.conf"


def image_cache(cache: str, root: Path) -> str:
    folder = root / "site"
    files(folder, {"settings.json": json.dumps({"cache": cache})})
    return readers.image_cache({}, root, folder)


def test_image_caches_in_home_directories_are_ignored(tmp_path: Path) -> None:
    assert image_cache("~/.cache/slurmstack", tmp_path) == ""


@pytest.mark.parametrize("cache", ["/local/%u", "/local/images-%u/cache"])
def test_usage_of_a_local_cache_is_read_at_its_parent(tmp_path: Path, cache: str) -> None:
    (tmp_path / "local").mkdir()

    *_, mode, path = image_cache(cache, tmp_path).split()

    assert (mode, path) == ("rw", "/local")


def test_image_cache_reader_follows_no_link_out_of_the_jail(tmp_path: Path) -> None:
    (tmp_path / "local").symlink_to("/proc")

    assert image_cache("/local/%u", tmp_path) == "0 0 missing /local\n"


def test_local_image_cache_fails_if_missing_or_read_only_or_full() -> None:
    def judge(text: str) -> str | None:
        return system.image_cache(text, max_percent=95)

    assert judge("") is None
    assert judge("95 10 rw /local\n") is None
    assert (
        judge("0 0 missing /local\n")
        == "/local is missing: check the volume that should be mounted there"
    )
    assert (
        judge("10 10 ro /local\n")
        == "/local is read-only: see the kernel's log for errors of this disk"
    )
    assert judge("96 10 rw /local\n") == "/local is full (96 %): delete files there"
