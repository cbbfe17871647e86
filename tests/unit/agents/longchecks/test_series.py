"""A time series keeps the newest records, even with concurrent writers and kills."""

import threading
from pathlib import Path

import pytest

from agents.longchecks import series as files
from agents.longchecks.judge import Verdict
from agents.longchecks.series import Record, Series


def record(run: str, *nodes: str, value: float = 1.0) -> Record:
    return Record(1_800_000_000, run, nodes or ("cpu-0",), value, "MB/s", Verdict.GOOD, "1 MB/s")


def test_record_is_added_to_the_series_of_each_node(tmp_path: Path) -> None:
    series = Series(tmp_path)
    series.add("network", record("a", "cpu-0", "cpu-1"))

    assert series.nodes("network") == ["cpu-0", "cpu-1"]
    assert series.of("network", "cpu-1") == [record("a", "cpu-0", "cpu-1")]
    assert series.of("network", "cpu-2") == []


def test_measurement_is_added_to_a_series_only_once(tmp_path: Path) -> None:
    series = Series(tmp_path)
    series.add("network", record("a", "cpu-0", "cpu-1"))
    series.add("network", record("a", "cpu-0", "cpu-1", value=2))
    series.add("network", record("a", "cpu-2", "cpu-0", value=3))

    assert [r.value for r in series.of("network", "cpu-0")] == [1, 3]


def test_series_keeps_only_the_newest_records(tmp_path: Path) -> None:
    series = Series(tmp_path, keep=3)
    for number in range(10):
        series.add("cpu-memory", record(str(number)))

    assert [r.run for r in series.of("cpu-memory", "cpu-0")] == ["7", "8", "9"]


def test_history_excludes_bad_values(tmp_path: Path) -> None:
    series = Series(tmp_path)
    for number, verdict in enumerate(Verdict):
        value = None if verdict is Verdict.UNKNOWN else float(number)
        made = Record(0, str(number), ("cpu-0",), value, "MB/s", verdict, "")
        series.add("cpu-memory", made)

    assert series.values("cpu-memory", "cpu-0") == [0, 2]


def test_measurement_is_complete_when_all_its_series_contain_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series, write, names = Series(tmp_path), files.replace, ["cpu-0", "cpu-1"]

    def killed_at_the_second(path: Path, text: str) -> None:
        if path.stem == "cpu-1":
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(files, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        series.add("network", record("a", *names))
    assert series.of_run("network", "a", names) == {}

    monkeypatch.setattr(files, "replace", write)
    series.add("network", record("a", *names))
    assert series.of_run("network", "a", names) == {tuple(names): record("a", *names)}


def test_concurrent_writers_lose_no_records(tmp_path: Path) -> None:
    def write(prefix: str) -> None:
        for number in range(20):
            Series(tmp_path).add("cpu-memory", record(f"{prefix}{number}"))

    threads = [threading.Thread(target=write, args=(prefix,)) for prefix in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(Series(tmp_path).of("cpu-memory", "cpu-0")) == 60
