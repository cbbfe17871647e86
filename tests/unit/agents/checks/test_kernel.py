"""Checks of lines in the kernel's log."""

import pytest

from agents.checks import kernel
from tests.support.recordings import recorded

REQUIRED = (
    "<3>[ 7.1] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to "
    "0x1 (GPU Reset Required)\n"
)
RECOVERED = (
    "<3>[ 9.2] NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
    "Required) to 0x0 (None)\n"
)


def xid(log: str) -> str | None:
    return kernel.xid(log, xids=kernel.XIDS)


def log(text: str) -> str | None:
    return kernel.log(text, patterns=kernel.PATTERNS)


def test_each_gpu_with_a_fatal_xid_is_named_once() -> None:
    wrong = xid(recorded("kernel-xid-119"))

    assert wrong is not None
    assert wrong.startswith("GPU 9b:00: Xid 119, pid=")
    assert wrong.count("Xid") == 1


def test_xids_of_applications_and_of_recovered_errors_pass() -> None:
    assert xid(recorded("kernel-xids")) is None


def test_gpu_that_has_recovered_passes_the_check() -> None:
    fatal = "[ 5.0] NVRM: Xid (PCI:0000:01:00): 119, pid=1, Timeout\n"

    assert xid(fatal + REQUIRED) is not None
    assert xid(fatal + REQUIRED + RECOVERED) is None
    assert xid(fatal.replace("01:00", "02:00") + REQUIRED + RECOVERED) is not None
    assert xid(RECOVERED + REQUIRED) is not None


def test_settings_choose_the_fatal_xids() -> None:
    assert kernel.xid(recorded("kernel-xid-119"), xids=(79,)) is None
    assert kernel.xid(recorded("kernel-xids"), xids=(94,)) is not None


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("<0>[ 1.0] {1}[Hardware Error]: event severity: fatal", True),
        ("[ 1.0] nvme nvme0: controller is down; will reset: CSTS=0xffffffff", True),
        ("[ 1.0] blk_update_request: I/O error, dev nvme0n1, sector 4711", True),
        ("[ 1.0] md/raid10:md2: Disk failure on nvme2n1p1 detected, failing array", True),
        ("[ 1.0] EXT4-fs (md0): Remounting filesystem read-only", True),
        ("[ 1.0] XFS (nvme0n1p1): metadata I/O error in xfs_buf", True),
        ("[ 1.0] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode", False),
        ("[ 1.0] Out of memory: Killed process 42 (python3)", False),
        ("[ 1.0] I/O error, dev loop0, sector 0", False),
    ],
)
def test_check_fails_only_for_kernel_lines_about_broken_hardware(line: str, wrong: bool) -> None:
    assert (log(line) is not None) is wrong


FORGED = (
    "<6>[ 1.000001] EXT4-fs error[42]: segfault at 0 ip 0 sp 0 error 4",
    "<6>[ 1.000001] NVRM: x[42]: segfault at 0 ip 0 in fallen off the bus[1000+2000]",
    "<3>[ 1.000001] tmpfs: Unknown parameter 'EXT4-fs error (device sda1)'",
    "<3>[ 1.000001] tmpfs: Unknown parameter 'a\n<3>[ 1.000001] EXT4-fs error (device sda1)'",
    "<3>[ 1.000001] tmpfs: Unknown parameter 'a\x0bNVRM: Xid (PCI:0000:01:00): 79, pid=1'",
    "<3>[ 1.000001] overlay: failed to resolve 'NVRM: Xid (PCI:0000:01:00): 79, pid=1': -2",
    "<3>[ 1.000001] tmpfs: bad 'a\n<3>[ 1.000001] NVRM: Xid (PCI:0000:01:00): 79, pid=1'",
)
"""Kernel messages that a user can cause, and whose text the user chooses."""


@pytest.mark.parametrize("text", FORGED)
def test_text_from_users_cannot_forge_driver_messages(text: str) -> None:
    assert log(text) is None
    assert xid(text) is None


def test_lines_of_one_kernel_message_are_joined() -> None:
    first = "<4>[ 1.000001][    T1] NVRM: The NVIDIA GPU 0000:b3:00.0"
    further = "<4>[ 1.000001][    T1] NVRM: has fallen off the bus"

    assert log(f"{first}\n{further}") == (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: has fallen off the bus"
    )


def test_uncorrected_memory_error_fails_and_a_corrected_one_passes() -> None:
    wrong = log(recorded("kernel-hardware"))

    assert wrong is not None
    assert wrong.startswith("EDAC MC3: 1 UE memory read error")
    assert log(recorded("kernel-corrected")) is None


def test_kernel_log_check_reports_a_lost_gpu_without_xid() -> None:
    assert xid(recorded("kernel-off-the-bus")) is None
    assert log(recorded("kernel-off-the-bus")) is not None


def test_settings_choose_the_patterns_for_the_kernel_log() -> None:
    assert kernel.log("[ 1.0] anything at all", patterns=("any.hing", "else")) == "anything at all"
    assert kernel.log("[ 1.0] anything at all", patterns=()) is None
