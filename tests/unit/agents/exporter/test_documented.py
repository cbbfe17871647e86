"""The tables of docs/metrics.md match the code's catalogues of metrics.

The catalogues match the exported metrics.
"""

import json
import os
import re

import pytest

from agents.bridge import metrics as bridge
from agents.exporter import measure
from agents.exporter.catalogue import SOURCES
from agents.exporter.exporter import Exporter
from agents.exporter.rows import parse
from agents.exporter.sources import Source
from agents.logs import metrics as logs
from agents.longchecks import metrics as longchecks
from agents.metrics import Metric
from agents.reconciler import metrics as reconciler
from agents.slurm import Statistics
from local.paths import ROOT
from tests.unit.agents.exporter.lines import node_line
from tests.unit.agents.exporter.recordings import RECORDED, tables

DOCUMENT = ROOT / "docs" / "metrics.md"
EXPORTED = [(source, metric) for source, metrics in SOURCES.items() for metric in metrics]
METRICS = [
    *(metric for _, metric in EXPORTED),
    *(*reconciler.METRICS, *longchecks.METRICS, *logs.METRICS, *bridge.METRICS),
]
GPUS = node_line("gpu:h100:8", "gpu:h100:1", "cpu=8,mem=64G,gres/gpu=8")


def row(metric: Metric, *more: str) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (
        " | ".join(
            (
                f"| `{metric.name}`",
                metric.type,
                labels or "–",
                metric.means,
                metric.unit or "–",
                *more,
            )
        )
        + " |"
    )


def test_documented_tables_match_the_catalogues() -> None:
    tables: dict[str, list[str]] = {}
    heading = ""
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if line.startswith("| `"):
            tables.setdefault(heading, []).append(line)

    assert tables == {
        "All metrics": [row(metric, source) for source, metric in EXPORTED],
        "Metrics of the reconciler": list(map(row, reconciler.METRICS)),
        "Metrics of long checks": list(map(row, longchecks.METRICS)),
        "Metrics of the logs": list(map(row, logs.METRICS)),
        "Metrics of the bridge": list(map(row, bridge.METRICS)),
    }


def test_catalogue_matches_the_exported_metrics() -> None:
    recorded = tables()
    recorded.nodes.extend(parse([GPUS]).nodes)
    statistics = json.loads((RECORDED / "sdiag.json").read_text())["statistics"]
    found = {
        "cluster": list(measure.cluster(recorded, 0, 10, 10, str)),
        "scheduler": list(measure.scheduler(Statistics.model_validate(statistics), 10, str)),
        "reservations": list(measure.reservations(recorded.reservations)),
        "licenses": list(measure.licenses(recorded.licenses)),
        "jail": list(measure.jail({"jail": os.statvfs_result(range(1, 11))})),
    }
    exporter = Exporter([Source("nodes", lambda _: [])], [], 30)
    exporter.read()
    text = exporter.metrics().decode()

    for source, families in found.items():
        shown = {(family.name, family.type) for family in families}
        assert shown == {
            (metric.name.removesuffix("_total"), metric.type) for metric in SOURCES[source]
        }
    own = set(re.findall(r"^# TYPE (slurm_\w+) ", text, re.MULTILINE))
    assert own == {metric.name for metric in SOURCES["exporter"]}


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_metric_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    """https://prometheus.io/docs/practices/naming/"""
    assert re.fullmatch(r"slurm(stack)?_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    base = metric.name.removesuffix("_total")
    assert (metric.unit in ("seconds", "Unix time")) == base.endswith("_seconds")
    assert (metric.unit == "bytes") == base.endswith("_bytes")
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) for label in metric.labels)
    assert not {"quantile", "le"} & set(metric.labels), (
        "these labels belong to summaries and histograms"
    )


def test_metric_names_are_unique() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
