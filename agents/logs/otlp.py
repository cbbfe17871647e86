"""Lines as OpenTelemetry's protocol has them: https://opentelemetry.io/docs/specs/otlp/.

By HTTP, in the JSON form of the protocol: its messages are few, and whoever debugs a receiver can
read them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agents.logs.lines import Line

PATH = "/v1/logs"
"""Below a receiver's address."""


@dataclass(frozen=True)
class Source:
    """A container of a pod."""

    uid: str
    """The pod's."""
    pod: str
    container: str
    component: str
    node: str
    """The Kubernetes node."""

    @property
    def key(self) -> str:
        """Tells it from all others, also from that of a later pod of the same name."""
        return f"{self.uid}/{self.container}"


@dataclass(frozen=True)
class Entry:
    """A line, and who wrote it."""

    source: Source
    line: Line


def request(entries: Iterable[Entry], cluster: str, namespace: str) -> bytes:
    """An ExportLogsServiceRequest: the lines of each container together, in their order."""
    records: dict[Source, list[dict[str, Any]]] = {}
    for entry in entries:
        records.setdefault(entry.source, []).append(_record(entry.line))
    logs = [
        {
            "resource": {"attributes": _attributes(_resource(source, cluster, namespace))},
            "scopeLogs": [{"logRecords": found}],
        }
        for source, found in records.items()
    ]
    return msgspec.json.encode({"resourceLogs": logs})


def _resource(source: Source, cluster: str, namespace: str) -> dict[str, str]:
    """Names are those of OpenTelemetry's semantic conventions, but for Slurm's."""
    return {
        "service.name": source.component,
        "k8s.namespace.name": namespace,
        "k8s.pod.name": source.pod,
        "k8s.container.name": source.container,
        "k8s.node.name": source.node,
        "slurm.cluster": cluster,
    }


def _record(line: Line) -> dict[str, Any]:
    return {
        # 64-bit numbers are text in protobuf's JSON.
        "timeUnixNano": str(line.time),
        "severityNumber": int(line.severity),
        "severityText": line.severity.name,
        "body": {"stringValue": line.text},
        **({"attributes": _attributes({"slurm.job": line.job})} if line.job else {}),
    }


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


class _Partial(msgspec.Struct, rename="camel"):
    rejected_log_records: int | str = 0
    error_message: str = ""


class _Response(msgspec.Struct, rename="camel"):
    partial_success: _Partial | None = None


def rejected(answer: bytes) -> tuple[int, str]:
    """How many lines of a request that was accepted were not, and why: (0, "") where all were.

    A receiver need not say anything, and what is not of the protocol says nothing.
    """
    try:
        partial = msgspec.json.decode(answer, type=_Response).partial_success or _Partial()
        return int(partial.rejected_log_records), " ".join(partial.error_message.split())
    except (msgspec.DecodeError, ValueError):
        return 0, ""
