"""What the kernel's log tells, as dmesg(1) prints it: `<4>[   12.345678] text`.

A line stays there until the machine starts again, or until newer ones have pushed it out.
"""

import re
from collections.abc import Sequence

from agents.checks.judging import listed

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+), (.*)")
_RECOVERED = "(None)"
"""How Xid 154 ends where a GPU needs nothing any more."""
_STAMP = re.compile(r"^(?:<\d+>)?(?:\[[^\]]*\] ?)?")

XIDS = (46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 149, 154)
"""Those of Xid that a GPU does not come back from without a reset or a repair: it stopped (46), an
uncorrectable error (48), its microcontroller halted (62), a row that could not be remapped (64),
NVLink (74, 149), off the bus (79), an uncontained error (95), its system processor silent (119,
120), an unrecovered error (140), not initialised (143), and what the driver itself concludes (154).
Row remapping (63) and contained errors (94) are told by nvidia-smi, and most others are an
application's (https://docs.nvidia.com/deploy/xid-errors/)."""
PATTERNS = (
    r"NVRM: .*fallen off the bus",
    r"\[Hardware Error\].*\b(?:fatal|[Uu]ncorrected)\b",
    r"EDAC .*\bUE\b",
    r"nvme .*(?:controller is down|Device not ready|Disabling device after reset failure)",
    r"(?:I/O|critical medium) error, dev (?:nvme|sd)",
    r"md/raid.*Disk failure",
    r"EXT4-fs error|XFS .*(?:Corruption|metadata I/O error)|Remounting filesystem read-only",
)
"""Regular expressions of lines by which the hardware, or a file system on it, is lost."""


def xid(log: str, *, xids: Sequence[int]) -> str | None:
    """No GPU has met one of these errors since, as far as the driver told, it last recovered."""
    found: dict[str, str] = {}
    for bus, number, text in _XID.findall(log):
        if number == "154" and text.rstrip().endswith(_RECOVERED):
            found.pop(bus, None)
        elif int(number) in xids:
            found[bus] = f"GPU {bus.partition(':')[2]}: Xid {number}, {text[:60].strip()}"
    return listed(found.values())


def log(log: str, *, patterns: Sequence[str]) -> str | None:
    """The log has no line that fits one of these patterns; the latest one is told."""
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
    for line in reversed(log.splitlines()):
        if wanted.search(line):
            return _STAMP.sub("", line).strip()[:120]
    return None
