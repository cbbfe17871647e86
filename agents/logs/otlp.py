"""Encode lines for OpenTelemetry's protocol: https://opentelemetry.io/docs/specs/otlp/.

It uses HTTP and the protocol's JSON form: messages are few, and people who debug a receiver can
read them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agents.logs.lines import Line

PATH = "/v1/logs"
"""Path below a receiver's address."""


@dataclass(frozen=True)
class Source:
    """A container of a pod."""

    uid: str
    """UID of the pod."""
    pod: str
    container: str
    component: str
    node: str
    """The Kubernetes node."""

    @property
    def key(self) -> str:
        """Unique key, which also differs from that of a later pod with the same name."""
        return f"{self.uid}/{self.container}"


@dataclass(frozen=True)
class Entry:
    """A line and its source."""

    source: Source
    line: Line


def request(entries: Iterable[Entry], cluster: str, namespace: str) -> bytes:
    """Return an ExportLogsServiceRequest: the lines of each container together, in their order."""
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
    """Return attributes, named by OpenTelemetry's semantic conventions except Slurm's."""
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
    """Return how many lines of an accepted request were rejected, and why; (0, "") if none were.

    A receiver need not report this. An answer outside the protocol counts as no report.
    """
    try:
        partial = msgspec.json.decode(answer, type=_Response).partial_success or _Partial()
        return int(partial.rejected_log_records), " ".join(partial.error_message.split())
    except (msgspec.DecodeError, ValueError):
        return 0, ""
