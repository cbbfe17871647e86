"""Encode lines for OpenTelemetry's protocol (https://opentelemetry.io/docs/specs/otlp/).

The encoding is JSON over HTTP, so that people who debug a receiver can read the requests. A more
compact encoding would save little, because requests are few.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agents.logs.lines import Line

PATH = "/v1/logs"
"""Path that is appended to a receiver's address."""


@dataclass(frozen=True)
class Source:
    """Container of a pod."""

    uid: str
    """UID of the pod."""
    pod: str
    container: str
    component: str
    node: str
    """Kubernetes node."""

    @property
    def key(self) -> str:
        """Unique key of the container. A later pod with the same name has another key."""
        return f"{self.uid}/{self.container}"


@dataclass(frozen=True)
class Entry:
    """Line and its source."""

    source: Source
    line: Line


def request(entries: Iterable[Entry], cluster: str, namespace: str) -> bytes:
    """Return an ExportLogsServiceRequest with the lines grouped by container, in their order."""
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
    """Return the attributes of a container's lines.

    All names except `slurm.cluster` are in OpenTelemetry's semantic conventions.
    """
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
        # 64-bit numbers are strings in protobuf's JSON.
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
    """Return the number of rejected lines in an accepted request, and the reason, or (0, "").

    Receivers may omit this report. An answer in another format is treated as no report.
    """
    try:
        partial = msgspec.json.decode(answer, type=_Response).partial_success or _Partial()
        return int(partial.rejected_log_records), " ".join(partial.error_message.split())
    except (msgspec.DecodeError, ValueError):
        return 0, ""
