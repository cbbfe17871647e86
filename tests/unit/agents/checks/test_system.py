"""Checks of disks, memory, jail, clock, munge, leftovers and processes."""

import pytest

from agents.checks import system
from agents.checks.judging import EARLIER, UnknownError
from tests.unit.agents.checks.processes import BUSY, IDLE

REMOVE = "; remove these files, or restart the pod"

# --- Disks ---------------------------------------------------------------------------------------


def disk(text: str, *further: str) -> str | None:
    paths = [*(line.split(None, 3)[3] for line in text.splitlines()), *further]
    return system.disk(text, paths=paths, max_percent=95, max_inodes_percent=95)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("95 95 rw /\n0 0 rw /tmp\n", None),
        ("96 1 rw /tmp\n", "/tmp is full (96 %): delete files there"),
        ("1 96 rw /tmp\n", "/tmp is out of inodes (96 %): delete files there"),
        (
            "1 1 ro /var/spool/slurmd\n",
            "/var/spool/slurmd is read-only: see the kernel's log for errors of this disk",
        ),
        (
            "96 1 rw /\n1 1 ro /a b\n",
            (
                "/ is full (96 %): delete files there, /a b is read-only: see the kernel's log for "
                "errors of this disk"
            ),
        ),
    ],
)
def test_disk_fails_if_full_or_read_only_or_out_of_inodes(text: str, wrong: str | None) -> None:
    assert disk(text) == wrong


def test_check_of_an_unread_disk_is_unknown() -> None:
    with pytest.raises(UnknownError, match="'/data' was not read"):
        disk("1 1 rw /\n", "/data")


# --- Memory --------------------------------------------------------------------------------------


def memory(text: str, processes: str = IDLE) -> str | None:
    return system.memory(text, processes, min_percent=80)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("limit 1000\nfree 800\n", None),
        (
            "limit 1000\nfree 799\n",
            (
                "799 of 1000 MiB of memory are free on a node without jobs, expected at least 80 "
                "%; end leftover processes"
            ),
        ),
    ],
)
def test_idle_node_fails_if_too_little_memory_is_free(text: str, wrong: str | None) -> None:
    assert memory(text) == wrong


def test_memory_check_of_a_busy_node_is_unknown() -> None:
    with pytest.raises(UnknownError):
        memory("limit 1000\nfree 1\n", BUSY)


def test_jobs_of_an_earlier_reading_are_ignored() -> None:
    assert memory("limit 1000\nfree 1\n", f"{IDLE}{EARLIER}22\n{BUSY}")
    with pytest.raises(UnknownError, match="jobs run on this node"):
        memory("limit 1000\nfree 1\n", f"{BUSY}{EARLIER}22\n{IDLE}")


# --- The jail ------------------------------------------------------------------------------------

GOOD = {
    "generation": "3",
    "generation_age": "90000",
    "settings_age": "7200",
    "ahead": "0.000",
    "written": "yes",
}


def text(**changes: str) -> str:
    return "".join(f"{name} {value}\n" for name, value in {**GOOD, **changes}.items() if value)


def jail(found: str, generation: int | None = 3) -> str | None:
    return system.jail(found, generation=generation)


def test_mounted_writable_jail_of_the_right_generation_passes() -> None:
    assert jail(text()) is None


def test_jail_that_is_not_mounted_fails() -> None:
    assert str(jail("")).startswith("the jail is not mounted, or was never populated; check")


@pytest.mark.parametrize("why", ["Read-only file system", "Input/output error"])
def test_unwritable_jail_fails_and_the_message_says_why(why: str) -> None:
    assert jail(text(written=why, ahead="")) == (
        f"the node cannot write to the jail: {why}; check the mount options and the storage of the "
        "jail's volume"
    )


def test_wrong_jail_generation_fails_only_after_a_delay() -> None:
    assert jail(text(), generation=4) == (
        "the jail has generation 3, but 'jail.refresh' is 4; check the Job that populates the jail"
    )
    assert jail(text(generation_age="60"), generation=4) is None
    assert jail(text(settings_age="60"), generation=4) is None


# --- The clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "wrong"),
    [("2.000", None), ("-2.000", None), ("2.500", "-2.5 s off"), ("-60.000", "+60.0 s off")],
)
def test_clock_check_fails_above_the_maximum_offset(ahead: str, wrong: str | None) -> None:
    found = system.clock(text(ahead=ahead), max_offset=2)

    shown = found and found.partition(";")[0]
    assert shown == (wrong and f"the node's clock is {wrong} the clock of the jail's storage")


def test_clock_check_without_a_jail_is_unknown() -> None:
    with pytest.raises(UnknownError):
        system.clock(text(ahead=""), max_offset=2)


# --- Munge ---------------------------------------------------------------------------------------


def test_munged_that_answers_passes() -> None:
    found = "STATUS:          Success (0)\nENCODE_HOST:     cpu-0 (192.0.2.7)\n"

    assert system.munge(found) is None


def test_failure_of_munged_is_reported_with_its_message() -> None:
    message = (
        'munge: Error: Failed to access "/run/munge/munge.socket.2": No such file or directory'
    )

    assert system.munge(f"\n{message}\nunmunge: Error: No credential specified\n") == message
    assert system.munge("") == "no output"


# --- Leftovers -----------------------------------------------------------------------------------


def leftovers(found: str, processes: str) -> str | None:
    return system.leftovers(found, processes, max_shm_mib=1024, min_age=600)


IN_USE = f"1025 MiB are in use in /dev/shm although no job runs{REMOVE}"


def remains(job: int) -> str:
    return f"directories of the ended job {job} remain in /tmp or /dev/shm{REMOVE}"


@pytest.mark.parametrize(
    ("found", "processes", "wrong"),
    [
        ("shm 1024 /dev/shm\n", IDLE, None),
        ("shm 1025 /dev/shm\n", IDLE, IN_USE),
        ("shm 90000 /dev/shm\n", BUSY, None),
        ("shm 0 /dev/shm\njob 601 41.2000\n", BUSY, remains(41)),
        (
            "shm 0 /dev/shm\njob 601 ended.41.2000.0\n",
            BUSY,
            remains(41),
        ),
        ("shm 0 /dev/shm\njob 600 41.2000\n", BUSY, None),
        ("shm 0 /dev/shm\njob 9000 42.2000\n", BUSY, None),
        ("shm 0 /dev/shm\njob 9000 42.2000\n", IDLE, remains(42)),
    ],
)
def test_leftovers_of_ended_jobs_fail_the_check(
    found: str, processes: str, wrong: str | None
) -> None:
    assert leftovers(found, processes) == wrong


# --- Processes -----------------------------------------------------------------------------------

STUCK = "77 1 2000 D 500 12 python3 \n"


def stuck(now: str, before: str, age: float = 60) -> str | None:
    return system.stuck(f"{now}{EARLIER}{age}\n{before}", min_seconds=30)


def test_process_that_stays_blocked_in_the_kernel_fails_the_check() -> None:
    assert stuck(IDLE + STUCK, STUCK) == (
        "the process python3 (pid 77) hangs in the kernel; check the storage, or restart the "
        "machine"
    )


@pytest.mark.parametrize(
    "before",
    [
        IDLE,
        STUCK.replace(" D ", " S "),
        STUCK.replace(" 12 ", " - "),
        STUCK.replace(" 12 ", " 11 "),
        STUCK.replace(" 500 ", " 400 "),
    ],
    ids=[
        "did not exist before",
        "was not blocked before",
        "could be killed before",
        "ran between the readings",
        "has a reused pid",
    ],
)
def test_process_that_was_not_blocked_all_the_time_is_accepted(before: str) -> None:
    assert stuck(STUCK, before) is None


def test_check_for_stuck_processes_needs_two_readings_some_time_apart() -> None:
    with pytest.raises(UnknownError):
        system.stuck(STUCK, min_seconds=30)
    with pytest.raises(UnknownError):
        stuck(STUCK, STUCK, age=5)
