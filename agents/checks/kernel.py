"""What the kernel's log tells, as dmesg(1) prints it: `<4>[   12.345678] text`.

A line stays there until the machine starts again, or until newer ones have pushed it out.
"""

import re
from collections.abc import Iterator, Sequence

from agents.checks.judging import listed

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+), (.*)")
_RECOVERED = "(None)"
"""How Xid 154 ends where a GPU needs nothing any more."""
_LINE = re.compile(r"((?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])?|) ?(?:\[[^\]]*\] )?(.*)")
"""A stamp, which may be missing or be that of `dmesg --ctime`, and a text."""
_OF_A_PROCESS = re.compile(r".{1,15}\[\d+\]")
"""How the kernel begins what it tells of a process: with a name that its user has chosen."""

XIDS = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 149, 154)
"""Those of Xid that a GPU does not come back from without a reset or a repair: it stopped (46), an
uncorrectable error (48), its microcontroller halted (62), a row that could not be remapped (64),
NVLink (74, 149), off the bus (79), an uncontained error (95), its system processor silent (119,
120), an unrecovered error (140), not initialised (143), and what the driver itself concludes (154).
Row remapping (63) and contained errors (94) are told by nvidia-smi, and most others are an
application's (https://docs.nvidia.com/deploy/xid-errors/)."""
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
"""Regular expressions that messages begin with by which the hardware, or a file system on it, is
lost."""


def xid(log: str, *, xids: Sequence[int]) -> str | None:
    """No GPU has met one of these errors since, as far as the driver told, it last recovered."""
    found: dict[str, str] = {}
    for bus, number, text in (told.groups() for told in map(_XID.match, _messages(log)) if told):
        if number == "154" and text.rstrip().endswith(_RECOVERED):
            found.pop(bus, None)
        elif int(number) in xids:
            found[bus] = f"GPU {bus.partition(':')[2]}: Xid {number}, {text[:60].strip()}"
    return listed(found.values())


def log(log: str, *, patterns: Sequence[str]) -> str | None:
    """No message begins with a match of a pattern; otherwise the latest that does is returned."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
    for text in reversed(list(_messages(log))):
        if wanted.match(text):
            return text.strip()[:120]
    return None


def _messages(log: str) -> Iterator[str]:
    """What drivers have told, each message in one line without its stamp.

    What a user can write is left out, or stands behind what the kernel itself has written: users
    choose the names of their processes, and where a mount(2) fails the kernel logs a text of
    theirs, with line breaks. A message's further lines have the stamp of its first, or none.
    """
    messages: list[str] = []
    before = ""
    # Not at what else splitlines() takes for the end of a line.
    for stamp, text in (found.groups() for found in map(_LINE.match, log.split("\n")) if found):
        if messages and (stamp == before != "" or text.startswith(" ")):
            messages[-1] += f" {text.strip()}"
        else:
            messages.append(text)
        before = stamp or before
    return (message for message in messages if not _OF_A_PROCESS.match(message))
