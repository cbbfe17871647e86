"""The agent encodes lines in OpenTelemetry's protocol."""

import json

import pytest

from agents.logs.lines import Line, Severity
from agents.logs.otlp import Entry, Source, rejected, request

CONTROLLER = Source("1", "controller-abc", "slurmctld", "controller", "node-0")
WORKER = Source("2", "cpu-0", "slurmd", "worker", "node-1")


def test_lines_are_grouped_by_source_and_keep_their_order() -> None:
    lines = [
        Entry(CONTROLLER, Line(5, "first", Severity.INFO, "7")),
        Entry(WORKER, Line(6, "slurmd: error: x", Severity.ERROR)),
        Entry(CONTROLLER, Line(7, "second", Severity.WARN)),
    ]

    first, second = json.loads(request(lines, "lab", "slurm"))["resourceLogs"]

    assert {one["key"]: one["value"]["stringValue"] for one in first["resource"]["attributes"]} == {
        "service.name": "controller",
        "k8s.namespace.name": "slurm",
        "k8s.pod.name": "controller-abc",
        "k8s.container.name": "slurmctld",
        "k8s.node.name": "node-0",
        "slurm.cluster": "lab",
    }
    (scope,) = first["scopeLogs"]
    assert scope["logRecords"] == [
        {
            "timeUnixNano": "5",
            "severityNumber": 9,
            "severityText": "INFO",
            "body": {"stringValue": "first"},
            "attributes": [{"key": "slurm.job", "value": {"stringValue": "7"}}],
        },
        {
            "timeUnixNano": "7",
            "severityNumber": 13,
            "severityText": "WARN",
            "body": {"stringValue": "second"},
        },
    ]
    assert second["scopeLogs"][0]["logRecords"][0]["severityNumber"] == 17


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", (0, "")),
        (b"{}", (0, "")),
        (b'{"partialSuccess": {}}', (0, "")),
        (b'{"partialSuccess": null}', (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"so\\nold"}}', (3, "so old")),
        (b'{"partialSuccess":{"rejectedLogRecords":2}}', (2, "")),
        (b"<html>", (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":"many"}}', (0, "")),
    ],
)  # fmt: skip
def test_number_and_reason_of_rejected_lines_are_read_from_the_answer(
    answer: bytes, expected: tuple[int, str]
) -> None:
    assert rejected(answer) == expected
