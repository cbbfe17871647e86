"""Checks of the kernel's log, in the format of dmesg(1): `<4>[   12.345678] text`.

A line stays there until the machine restarts, or until newer lines push it out.
"""

import re
from collections.abc import Iterator, Sequence

from agents.checks.judging import listed

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+), (.*)")
_RECOVERED = "(None)"
"""End of Xid 154 if the GPU needs no recovery any more."""
_LINE = re.compile(r"((?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])?|) ?(?:\[[^\]]*\] )?(.*)")
"""A stamp and a text. The stamp may be missing, or that of `dmesg --ctime`."""
_OF_A_PROCESS = re.compile(r".{1,15}\[\d+\]")
"""Start of the kernel's messages about a process: its name, which its user has chosen."""

XIDS = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 149, 154)
"""Xids after which a GPU needs a reset or a repair:

    46        the GPU stopped
    48        an uncorrectable error
    62        its microcontroller halted
    64        a row could not be remapped
    74, 149   NVLink
    79        off the bus
    95        an uncontained error
    119, 120  its system processor is silent
    140       an unrecovered error
    143       not initialised
    154       the driver's own conclusion

nvidia-smi reports row remapping (63) and contained errors (94). Applications cause most others
(https://docs.nvidia.com/deploy/xid-errors/).
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
"""Patterns for the beginning of messages about lost hardware, or a lost file system on it."""


def xid(log: str, *, xids: Sequence[int]) -> str | None:
    """Check that no GPU had one of these errors since the driver last reported its recovery."""
    found: dict[str, str] = {}
    for bus, number, text in (match.groups() for match in map(_XID.match, _messages(log)) if match):
        if number == "154" and text.rstrip().endswith(_RECOVERED):
            found.pop(bus, None)
        elif int(number) in xids:
            found[bus] = f"GPU {bus.partition(':')[2]}: Xid {number}, {text[:60].strip()}"
    return listed(found.values())


def log(log: str, *, patterns: Sequence[str]) -> str | None:
    """Check that no message begins with a match of a pattern. Returns the latest one that does."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
    for text in reversed(list(_messages(log))):
        if wanted.match(text):
            return text.strip()[:120]
    return None


def _messages(log: str) -> Iterator[str]:
    """Return the messages of drivers, each in one line without its stamp.

    Text that users can write is left out, or comes after text of the kernel itself. Users choose
    the names of their processes. If a mount(2) fails, the kernel logs a text of the user, with line
    breaks. Further lines of a message have the stamp of its first line, or none.
    """
    messages: list[str] = []
    before = ""
    # splitlines() would also split at other characters.
    for stamp, text in (found.groups() for found in map(_LINE.match, log.split("\n")) if found):
        if messages and (stamp == before != "" or text.startswith(" ")):
            messages[-1] += f" {text.strip()}"
        else:
            messages.append(text)
        before = stamp or before
    return (message for message in messages if not _OF_A_PROCESS.match(message))
