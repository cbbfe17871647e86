"""The report of the tests' costs reads /proc/stat and /proc/meminfo, and sums costs by file."""

import os
from typing import Any

from tests.support.report import busy, memory_in_use, table

TICK = os.sysconf("SC_CLK_TCK")


def document(lane: str, *tests: dict[str, Any]) -> dict[str, Any]:
    total = {"wall": 60.0, "own": 2.0, "machine": 70.0}
    return {
        "lane": lane,
        "total": total,
        "peak_memory_mib": 900,
        "tests": list(tests),
        "fixtures": [
            {
                "fixture": "tests/cluster::cluster",
                "times": 1,
                "setup": {"wall": 40.0, "own": 1.0, "machine": 50.0},
                "teardown": {"wall": 5.0, "own": 0.0, "machine": 6.0},
            }
        ],
    }


def one(name: str, wall: float, reruns: int = 0) -> dict[str, Any]:
    phases = {"call": {"wall": wall, "own": 1.0, "machine": wall}}
    return {
        "test": name,
        "tier": "cluster",
        "outcome": "passed",
        "reruns": reruns,
        "phases": phases,
    }


def test_idle_and_io_wait_time_is_not_busy_time() -> None:
    line = b"cpu  %d %d %d 9999 8888 %d %d %d 0 0\n" % (TICK, TICK, TICK, TICK, TICK, TICK)

    assert busy(line) == 6


def test_memory_in_use_excludes_available_memory() -> None:
    assert memory_in_use("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n") == 2


def test_report_sums_costs_by_file_and_lists_reruns() -> None:
    lines = table(
        [
            document("cluster", one("a.py::one", 10, reruns=1), one("a.py::two", 5)),
            document("container", one("b.py::three", 1)),
        ]
    )

    words = [line.split() for line in lines]
    assert ["15.0", "2.0", "15.0", "1", "file", "a.py"] in words
    assert ["16.0", "3.0", "16.0", "1", "tier", "cluster"] in words
    assert [row[:3] for row in words if row[3:5] == ["fixture", "tests/cluster::cluster"]]
    assert "rerun: a.py::one" in lines
    assert sum("lane c" in line for line in lines) == 2
