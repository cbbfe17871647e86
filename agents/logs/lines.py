"""Lines of containers, as Kubernetes tells them, and what the daemons' own forms say of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

SECOND = 1_000_000_000
"""Nanoseconds, in which all moments here are told, since 1970."""
LONGEST = 16 * 1024
"""Bytes of a line that are sent; as long are the parts that container runtimes write."""
_KEPT = LONGEST + 64
"""The same with the moment before it, and enough to see that there was more."""
_STAMP = re.compile(
    rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.(?P<fraction>\d{1,9}))?"
    rb"(?P<zone>Z|[+-]\d\d:\d\d) "
)
"""What `timestamps=true` puts before each line: RFC 3339, with nanoseconds."""


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
"""By the daemons' words for them; every other is information."""
_FORMS = (
    # MariaDB: 2026-11-22 18:20:19 0 [Warning] …
    re.compile(r"\d{4}-\d\d-\d\d +\d{1,2}:\d\d:\d\d \d+ \[(?P<word>\w+)\] "),
    # logfmt, of Prometheus and its like: the level is not always the first.
    re.compile(r'(?:\w+=(?:"[^"]*"|[^\s"]\S*)? )*?level=(?P<word>\w+)'),
    # Slurm (src/common/log.c) and munged, which say who they are, and sshd -e, which does not.
    re.compile(r"(?:(?:slurm\w*|sackd|munged): )?(?P<word>\w+): "),
)
_JOB = re.compile(r"(?:\b(?:JobId|StepId)=|\bjob )(?P<job>\d{1,10}(?:[_+]\d{1,10})?)")
_HEAD = 1024
"""Characters of a line in which a job is looked for."""


@dataclass(frozen=True)
class Line:
    time: int
    """When the container wrote it, by its node's clock."""
    text: str
    severity: Severity
    job: str = ""
    """Of Slurm, as squeue calls it; "" where the line tells of none."""


def read(raw: bytes) -> Line | None:
    """A line with its moment before it; None where there is no moment or nothing behind it.

    Without a moment are the kubelet's own words, as of a log that it cannot find.
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
    """Cuts a stream into lines; of one that is too long it keeps no more than is sent."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk ends."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            yield self.rest()
            self._begun.clear()
        self._add(rest)

    def rest(self) -> bytes:
        """What there is of a line that has not ended."""
        return bytes(self._begun)

    def _add(self, part: bytes) -> None:
        self._begun += part[: _KEPT - len(self._begun)]
