"""Parse the log lines that Kubernetes returns, and find the severity and the job in each line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

SECOND = 1_000_000_000
"""One second in nanoseconds. All times in this package are nanoseconds since 1970."""
LONGEST = 16 * 1024
"""Maximum length of a sent line in bytes. Container runtimes split lines at the same length."""
_KEPT = LONGEST + 64
"""Bytes of a line that the agent keeps: LONGEST, plus space for the timestamp and for the detection
of longer lines."""
_STAMP = re.compile(
    rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.(?P<fraction>\d{1,9}))?"
    rb"(?P<zone>Z|[+-]\d\d:\d\d) "
)
"""Timestamp that `timestamps=true` adds before each line: RFC 3339, with nanoseconds."""


class Severity(IntEnum):
    """SeverityNumber of https://opentelemetry.io/docs/specs/otel/logs/data-model/."""

    DEBUG = 5
    INFO = 9
    WARN = 13
    ERROR = 17
    FATAL = 21


_SEVERITIES = {
    **dict.fromkeys(("trace", "debug", *(f"debug{n}" for n in range(1, 6))), Severity.DEBUG),
    **dict.fromkeys(("warn", "warning"), Severity.WARN),
    **dict.fromkeys(("error", "err"), Severity.ERROR),
    **dict.fromkeys(("fatal", "critical", "crit", "alert", "emergency", "panic"), Severity.FATAL),
}
"""Severity for each word that the daemons use. Every other word means INFO."""
_FORMS = (
    # MariaDB: 2026-11-22 18:20:19 0 [Warning] …
    re.compile(r"\d{4}-\d\d-\d\d +\d{1,2}:\d\d:\d\d \d+ \[(?P<word>\w+)\] "),
    # logfmt, which Prometheus uses, for example: the level is not always first.
    re.compile(r'(?:\w+=(?:"[^"]*"|[^\s"]\S*)? )*?level=(?P<word>\w+)'),
    # Lines of Slurm (source: src/common/log.c) and munged start with the program's name. Lines of
    # `sshd -e` have no name.
    re.compile(r"(?:(?:slurm\w*|sackd|munged): )?(?P<word>\w+): "),
)
_JOB = re.compile(r"(?:\b(?:JobId|StepId)=|\bjob )(?P<job>\d{1,10}(?:[_+]\d{1,10})?)")
_HEAD = 1024
"""Number of characters at the start of a line in which the agent searches for a job."""


@dataclass(frozen=True)
class Line:
    time: int
    """Time at which the container wrote the line, from the clock of the container's machine."""
    text: str
    severity: Severity
    job: str = ""
    """ID of a Slurm job in squeue's format, or "" if the line names no job."""


def read(raw: bytes) -> Line | None:
    """Parse a line with its timestamp. Returns None if the timestamp or the text is missing.

    The kubelet's own messages, such as the one about a missing log, have no timestamp.
    """
    stamp = _STAMP.match(raw)
    written = raw[stamp.end() :].rstrip(b"\r") if stamp else b""
    if stamp is None or not written:
        return None
    try:
        second = datetime.fromisoformat((stamp["second"] + stamp["zone"]).decode())
    except ValueError:
        return None
    text = written[:LONGEST].decode(errors="replace") + "…" * (len(written) > LONGEST)
    return Line(
        int(second.timestamp()) * SECOND + int((stamp["fraction"] or b"0").ljust(9, b"0")),
        text,
        severity(text),
        found["job"] if (found := _JOB.search(text, 0, _HEAD)) else "",
    )


def severity(text: str) -> Severity:
    for form in _FORMS:
        if found := form.match(text):
            return _SEVERITIES.get(found["word"].lower(), Severity.INFO)
    return Severity.INFO


class Splitter:
    """Splits a stream into lines, and discards the end of long lines."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            yield self.rest()
            self._begun.clear()
        self._add(rest)

    def rest(self) -> bytes:
        """Return the incomplete line."""
        return bytes(self._begun)

    def _add(self, part: bytes) -> None:
        self._begun += part[: _KEPT - len(self._begun)]
