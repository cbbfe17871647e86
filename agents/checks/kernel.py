"""Checks of the kernel's log, in the format of dmesg(1): `<4>[   12.345678] text`.

A line stays in the log until the machine restarts, or until newer lines replace it. So a check
usually fails until the machine restarts.
"""

import re
from collections.abc import Iterator, Sequence

from agents.checks.judging import listed

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+), (.*)")
_RECOVERED = "(None)"
"""End of the message of Xid 154 if a GPU has recovered. Xids are error codes of NVIDIA's driver."""
_LINE = re.compile(r"((?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])?|) ?(?:\[[^\]]*\] )?(.*)")
"""Time stamp and text. The stamp may be missing, or have the format of `dmesg --ctime`."""
_OF_A_PROCESS = re.compile(r".{1,15}\[\d+\]")
"""Start of the kernel's messages about a process: its name and pid. Users can choose the name."""

XIDS = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 149, 154)
"""Xids (error codes of NVIDIA's driver) after which a GPU needs a reset or a repair:

    46        the GPU stopped
    48        uncorrectable memory error
    62        the GPU's microcontroller halted
    64        row remapping failed
    74, 149   NVLink error
    79        the GPU has fallen off the bus
    95        uncontained memory error
    119, 120  the GPU's system processor does not answer
    140       unrecovered memory error
    143       the GPU could not be initialised
    154       the driver itself asks for a reset or a repair

Row remapping (63) and contained errors (94) are not in this list, because nvidia-smi reports both.
Applications cause most other Xids. Source: https://docs.nvidia.com/deploy/xid-errors/.
"""
PATTERNS = (
    r"NVRM: .*fallen off the bus",
    r"(?:mce: |\{\d+\})?\[Hardware Error\].*\b(?:fatal|[Uu]ncorrected)\b",
    r"EDAC .*\bUE\b",
    r"nvme .*(?:controller is down|Device not ready|Disabling device after reset failure)",
    r"(?:blk_update_request: )?(?:I/O|critical medium) error, dev (?:nvme|sd)",
    r"md/raid.*Disk failure",
    r"EXT4-fs error \(device|EXT4-fs \(.*Remounting filesystem read-only",
    r"XFS \(.*(?:Corruption|metadata I/O error)",
)
"""Patterns for the start of messages about broken hardware or broken local file systems."""


def xid(log: str, *, xids: Sequence[int]) -> str | None:
    """Check that the log contains none of these Xids.

    Ignores the Xids of a GPU before the driver's last report that this GPU has recovered.
    """
    found: dict[str, str] = {}
    for bus, number, text in (match.groups() for match in map(_XID.match, _messages(log)) if match):
        if number == "154" and text.rstrip().endswith(_RECOVERED):
            found.pop(bus, None)
        elif int(number) in xids:
            found[bus] = f"GPU {bus.partition(':')[2]}: Xid {number}, {text[:60].strip()}"
    return listed(found.values())


def log(log: str, *, patterns: Sequence[str]) -> str | None:
    """Check that no message starts with one of the patterns. Returns the latest such message."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
    for text in reversed(list(_messages(log))):
        if wanted.match(text):
            return text.strip()[:120]
    return None


def _messages(log: str) -> Iterator[str]:
    """Return each message of the log in one line without its time stamp.

    Users must not be able to forge a message. There are two ways to write to the log:

    - The kernel logs names of processes, which users choose. So this function leaves out messages
      that start with the name of a process.
    - For a failed mount(2), the kernel logs the user's text, which may contain line breaks. So this
      function joins a line with the line before, unless it has a new time stamp.
    """
    messages: list[str] = []
    before = ""
    # Do not use splitlines(): it also splits at characters other than line feeds, and users can
    # write these characters.
    for stamp, text in (found.groups() for found in map(_LINE.match, log.split("\n")) if found):
        if messages and (stamp == before != "" or text.startswith(" ")):
            messages[-1] += f" {text.strip()}"
        else:
            messages.append(text)
        before = stamp or before
    return (message for message in messages if not _OF_A_PROCESS.match(message))
