"""Metrics of long checks show the newest value of each check that the settings enable."""

from pathlib import Path

import pytest

from agents.longchecks.judge import Verdict
from agents.longchecks.metrics import METRICS, Newest, families, newest
from agents.longchecks.series import TAIL, Record, Series
from agents.longchecks.wanted import Wanted
from tests.support.metrics import Series as Found
from tests.support.metrics import series as found_in

NOW = 1_800_000_000


@pytest.fixture
def series(tmp_path: Path) -> Series:
    return Series(tmp_path / "series")


def wanted(**checks: float | None) -> Wanted:
    """Return settings with these checks and thresholds, for cpu-0, cpu-1 and gpu-0."""
    chosen = {"nodesets": ["cpu", "gpu"], "fall": 0.15, "history": 20, "least": 5}
    return Wanted.model_validate(
        {
            "partition": "p",
            "user": "u",
            "logs": "/l",
            "at_once": 1,
            "wait": 1,
            "keep": 30,
            "nodesets": {
                "cpu": {"replicas": 2},
                "gpu": {"replicas": 1, "gpu_type": "h100", "gpus": 8},
                "other": {"replicas": 1},
            },
            "checks": {
                name.replace("_", "-"): {**chosen, "threshold": threshold}
                for name, threshold in checks.items()
            },
        }
    )


def measured(
    *nodes: str,
    value: float | None = 5000,
    verdict: Verdict = Verdict.GOOD,
    at: int = NOW,
) -> Record:
    return Record(at, str(at), nodes or ("cpu-0",), value, "MB/s", verdict, "")


def scraped(series: Series, asked: Wanted, messages: list[str] | None = None) -> Found:
    return found_in(
        families(newest(asked, series, (messages if messages is not None else []).append))
    )


def series_of(check: str, node: str, found: Found) -> dict[str, float]:
    """Return the series of one check on one node, by metric name without prefix."""
    labels = f'{{check="{check}",node="{node}"}}'
    return {
        name.removeprefix("slurmstack_longcheck_").removesuffix(labels): value
        for name, value in found.items()
        if name.endswith(labels)
    }


def test_newest_value_is_shown_with_its_time_and_threshold(series: Series) -> None:
    series.add("cpu-memory", measured(value=4000, at=NOW))
    series.add("cpu-memory", measured(value=5000, at=NOW + 1))

    found = scraped(series, wanted(cpu_memory=1000))
    newest = {"value": 5000, "timestamp_seconds": NOW + 1, "good": 1, "minimum": 1000}
    assert series_of("cpu-memory", "cpu-0", found) == newest
    assert len(found) == 4, "nodes that were never measured have no series"


@pytest.mark.parametrize(
    ("verdict", "good"),
    [(Verdict.GOOD, {"good": 1}), (Verdict.BAD, {"good": 0}), (Verdict.UNJUDGED, {})],
)
def test_value_without_a_verdict_has_no_series_good(
    series: Series, verdict: Verdict, good: dict[str, float]
) -> None:
    series.add("cpu-memory", measured(verdict=verdict))

    found = series_of("cpu-memory", "cpu-0", scraped(series, wanted(cpu_memory=None)))
    assert found == {"value": 5000, "timestamp_seconds": NOW, **good}


def test_failed_measurement_keeps_the_time_of_the_last_value(
    series: Series,
) -> None:
    series.add("cpu-memory", measured(verdict=Verdict.BAD))
    nothing = measured(value=None, verdict=Verdict.UNKNOWN, at=NOW + 86_400)
    series.add("cpu-memory", nothing)

    found = series_of("cpu-memory", "cpu-0", scraped(series, wanted(cpu_memory=None)))
    assert found == {"value": 5000, "timestamp_seconds": NOW, "good": 0}
    series.add("cpu-memory", Record(**{**vars(nothing), "nodes": ("cpu-1",)}))
    assert series_of("cpu-memory", "cpu-1", scraped(series, wanted(cpu_memory=None))) == {}


def test_value_of_a_pair_is_shown_for_both_nodes(series: Series) -> None:
    series.add("network", measured("cpu-0", "cpu-1", value=9.4))

    found = scraped(series, wanted(network=None))
    assert found['slurmstack_longcheck_value{check="network",node="cpu-0"}'] == 9.4
    assert found['slurmstack_longcheck_value{check="network",node="cpu-1"}'] == 9.4


def test_number_of_faults_has_a_maximum_and_no_minimum(series: Series) -> None:
    series.add("dcgm", measured("gpu-0", value=0))
    series.add("nccl", measured("gpu-0", value=470))

    found = scraped(series, wanted(dcgm=None, nccl=None))
    assert found['slurmstack_longcheck_maximum{check="dcgm",node="gpu-0"}'] == 0
    assert found['slurmstack_longcheck_minimum{check="nccl",node="gpu-0"}'] == 460
    assert len(found) == 8


def test_removed_nodes_and_checks_are_not_shown(series: Series) -> None:
    for node in ("cpu-1", "cpu-2", "other-0", "gone-0"):
        series.add("cpu-memory", measured(node))
    series.add("network", measured("cpu-0", "cpu-1"))

    found = scraped(series, wanted(cpu_memory=None))
    assert {name.partition("{")[2] for name in found} == {'check="cpu-memory",node="cpu-1"}'}


def test_broken_file_is_reported_and_other_files_are_shown(series: Series) -> None:
    series.add("cpu-memory", measured("cpu-0"))
    series.add("cpu-memory", measured("cpu-1"))
    broken = series.folder / "cpu-memory" / "cpu-0.jsonl"
    broken.write_bytes(b'\xff{"at": 1}\n')
    messages: list[str] = []

    found = scraped(series, wanted(cpu_memory=None), messages)
    assert series_of("cpu-memory", "cpu-0", found) == {}
    assert series_of("cpu-memory", "cpu-1", found)["value"] == 5000
    (line,) = messages
    assert line.startswith(f"{broken}: ")
    assert line.endswith("move this file away to start a new series")


def test_only_the_end_of_a_long_file_is_read(series: Series) -> None:
    series.add("cpu-memory", measured())
    path = series.folder / "cpu-memory" / "cpu-0.jsonl"
    path.write_text("no record\n" * TAIL + path.read_text())

    assert series.newest("cpu-memory", "cpu-0") == measured()


def test_each_scrape_uses_current_settings_and_series(series: Series, tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    collector = Newest(path, series.folder)
    path.write_text(wanted(cpu_memory=1000).model_dump_json())
    assert found_in(collector.collect()) == {}

    series.add("cpu-memory", measured())
    first = found_in(collector.collect())
    path.write_text(wanted(cpu_memory=2000).model_dump_json())
    second = found_in(collector.collect())
    minimum = 'slurmstack_longcheck_minimum{check="cpu-memory",node="cpu-0"}'
    assert (first[minimum], second[minimum]) == (1000, 2000)

    path.unlink()
    with pytest.raises(FileNotFoundError):
        found_in(collector.collect())


def test_catalogue_matches_the_exported_metrics(series: Series) -> None:
    shown = [(family.name, family.type) for family in families(newest(wanted(), series, print))]

    assert shown == [(metric.name, metric.type) for metric in METRICS]
