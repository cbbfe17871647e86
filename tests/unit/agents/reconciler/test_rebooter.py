"""The rebooter carries out only valid requests."""

import threading
from pathlib import Path

import pytest

from agents.reconciler import rebooter
from agents.reconciler.rebooter import boot_id, is_asked, request_of, started
from tests.unit.agents.reconciler.world import FakeApi, World

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (f"boot-1 {NOW}", True),
        (f"boot-2 {NOW}", False),
        (f"boot-1 {NOW - 3600}", False),
        ("boot-1", False),
        ("boot-1 soon", False),
        ("", False),
    ],
)
def test_request_is_valid_only_for_the_current_boot(request_: str, asked: bool) -> None:
    assert is_asked(request_, "boot-1", NOW - 1000) is asked


def test_rebooter_reads_only_the_request_for_its_own_machine() -> None:
    world = World(2, 1)
    world.boxes["cpu-1"].annotations["slurmstack.dev/reboot"] = f"boot-1 {NOW}"

    assert request_of(FakeApi(world), "machine-1") == f"boot-1 {NOW}"
    assert request_of(FakeApi(world), "machine-0") == ""


def test_boot_id_and_start_time_are_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b1\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\nprocesses 9\n")
    (tmp_path / "1").mkdir()
    rest = " ".join(str(number) for number in range(4, 22))
    (tmp_path / "1/stat").write_text(f"1 (a (b) c) S {rest} 500 99\n")

    assert boot_id(tmp_path) == "b1"
    assert started(tmp_path) == 1_700_000_005.0


def test_boot_id_and_start_time_of_this_machine_are_read() -> None:
    assert boot_id()
    assert 0 < started() < 4_000_000_000


def test_rebooter_asks_init_first_and_then_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []

    class Libc:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def reboot(self, how: int) -> int:
            done.append(how)
            return 0

    monkeypatch.setattr("os.sync", lambda: done.append("sync"))
    monkeypatch.setattr("os.kill", lambda *call: done.append(call))
    monkeypatch.setattr("ctypes.CDLL", Libc)
    monkeypatch.setattr(rebooter, "ORDERLY", 0)
    stopped, running = threading.Event(), threading.Event()
    stopped.set()

    rebooter.reboot(stopped)
    assert done == ["sync", (1, rebooter.SIGRTMIN_REBOOT)]
    rebooter.reboot(running)
    assert done[-1] == 0x01234567, "RB_AUTOBOOT of reboot(2)"


def test_reboot_that_the_kernel_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def reboot(self, _how: int) -> int:
            return -1

    monkeypatch.setattr("os.sync", lambda: None)
    monkeypatch.setattr("os.kill", lambda *_: None)
    monkeypatch.setattr("ctypes.CDLL", Libc)
    monkeypatch.setattr(rebooter, "ORDERLY", 0)

    with pytest.raises(OSError, match="reboot"):
        rebooter.reboot(threading.Event())
