"""A pytest plugin that records the cost of each test and fixture.

Each run writes `.local/reports/LANE.json` (`--lane LANE`) and prints a short table.
A lane is one run of pytest; `make test` has several lanes, which run in parallel.
`python -m tests.support.report` prints one table of all lanes of the last `make test`.

Costs have three parts, all in seconds:

- `wall`: wall-clock time.
- `own`: CPU time of pytest, and of processes that pytest started and waited for.
- `machine`: CPU time of all processes on the machine during that time, including containers,
  clusters and parallel lanes. From /proc/stat, see proc(5).
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".local/reports"
LONGEST = 12
"""Maximum number of rows of a table."""
_TICK = os.sysconf("SC_CLK_TCK")
_FIRST_LINE = 256
"""Bytes to read of /proc/stat; its first line has the times of all CPUs together."""


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, CPU seconds of pytest's processes, and CPU seconds of the machine."""

    wall: float = 0
    own: float = 0
    machine: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.own + other.own, self.machine + other.machine)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.own - other.own, self.machine - other.machine)


@dataclass
class TestCost:
    """Cost of a test with all its attempts."""

    __test__ = False

    test: str
    tier: str
    outcome: str = "passed"
    reruns: int = 0
    phases: dict[str, Cost] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.test.split("::", 1)[0]

    @property
    def cost(self) -> Cost:
        return sum(self.phases.values(), Cost())


@dataclass
class FixtureCost:
    """Cost of all set-ups and tear-downs of a fixture."""

    fixture: str
    times: int = 0
    setup: Cost = field(default_factory=Cost)
    teardown: Cost = field(default_factory=Cost)

    @property
    def cost(self) -> Cost:
        return self.setup + self.teardown


def clock() -> Cost:
    """Return the cost so far; only differences between two calls are meaningful."""
    spent = os.times()
    return Cost(time.monotonic(), sum(spent[:4]), busy(os.pread(_stat(), _FIRST_LINE, 0)))


@functools.cache
def _stat() -> int:
    """Open /proc/stat only once, because each test reads it several times."""
    return os.open("/proc/stat", os.O_RDONLY)


def busy(stat: bytes) -> float:
    """Return the busy seconds of all CPUs together, from the text of /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICK


def memory_in_use(meminfo: str) -> int:
    """Return the memory in MiB that new programs cannot use, from the text of /proc/meminfo."""
    values = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.splitlines()}
    return (values["MemTotal"] - values["MemAvailable"]) // 1024


class _Memory(threading.Thread):
    """Record the machine's peak memory in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(1):
            self.peak = max(self.peak, memory_in_use(Path("/proc/meminfo").read_text()))

    def end(self) -> int:
        self._end.set()
        return self.peak


# --- While tests run ------------------------------------------------------------------------------


class Watch:
    """Measure phases and fixtures in the process that runs them (with xdist, a worker)."""

    def __init__(self) -> None:
        self._fixtures: list[dict[str, Any]] = []
        self._phase: dict[str, Cost] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # Store plain values only, because xdist's workers send the attributes of a report as JSON.
        vars(report).update(
            spent=asdict(clock() - self._phase.pop(call.when)),
            fixtures=self._fixtures,
            tier=tier_of(item),
        )
        self._fixtures = []
        return report

    def _begin(self, when: str) -> Generator[None, None, None]:
        self._phase[when] = clock()
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        yield from self._begin("setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        yield from self._begin("call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        yield from self._begin("teardown")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        name = f"{fixturedef.baseid or 'pytest'}::{fixturedef.argname}"
        before = clock()
        try:
            return (yield)
        finally:
            self._spent(name, "setup", clock() - before)
            # Finalizers run in reverse order. This finalizer is added last, so it marks the start
            # of the fixture's tear-down.
            begun: list[Cost] = []
            fixturedef.addfinalizer(lambda: begun.append(clock()))
            fixturedef.__dict__["_begun"] = begun

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        begun = fixturedef.__dict__.pop("_begun", [])
        if begun:
            name = f"{fixturedef.baseid or 'pytest'}::{fixturedef.argname}"
            self._spent(name, "teardown", clock() - begun[0])

    def _spent(self, fixture: str, part: str, cost: Cost) -> None:
        if cost.wall > 0.001:
            self._fixtures.append({"fixture": fixture, "part": part, "cost": asdict(cost)})


def tier_of(item: pytest.Item) -> str:
    """Return a test's tier from its markers; `unit` if it has none."""
    tiers = ("soak", "machine", "cluster", "container")
    return next((tier for tier in tiers if item.get_closest_marker(tier)), "unit")


class Ledger:
    """Collect the reports of all workers, and print a summary at the end."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._path = FOLDER / f"{lane}.json"
        self._tests: dict[str, TestCost] = {}
        self._fixtures: dict[str, FixtureCost] = {}
        self._begun = clock()
        self._memory = _Memory()

    def pytest_sessionstart(self) -> None:
        # Remove the report of an earlier run, because a run that is killed writes no report.
        self._path.unlink(missing_ok=True)
        self._memory.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "spent"):
            return
        test = self._tests.setdefault(report.nodeid, TestCost(report.nodeid, report.tier))
        phase = test.phases.get(report.when or "", Cost())
        test.phases[report.when or ""] = phase + Cost(**report.spent)
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # of pytest-rerunfailures
            test.reruns += 1
        elif report.outcome != "passed":
            test.outcome = report.outcome
        for spent in report.fixtures:
            one = self._fixtures.setdefault(spent["fixture"], FixtureCost(spent["fixture"]))
            setattr(one, spent["part"], getattr(one, spent["part"]) + Cost(**spent["cost"]))
            one.times += spent["part"] == "setup"

    def document(self) -> dict[str, Any]:
        """Return the report as data for the JSON file."""
        return {
            "lane": self._lane,
            "total": asdict(clock() - self._begun),
            "peak_memory_mib": self._memory.end(),
            "tests": [asdict(test) for test in self._tests.values()],
            "fixtures": [asdict(one) for one in self._fixtures.values()],
        }

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._tests:
            return
        document = self.document()
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(document, indent=1) + "\n")
        terminalreporter.section(f"costs (.local/reports/{self._path.name})")
        for line in table([document]):
            terminalreporter.write_line(line)


# --- Tables ---------------------------------------------------------------------------------------


def table(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows for lanes and tiers, then for the most expensive files, tests and fixtures."""
    documents = list(documents)
    tests = [_test(one) for document in documents for one in document["tests"]]
    fixtures = [_fixture(one) for document in documents for one in document["fixtures"]]
    lanes = [
        _row(
            f"lane {document['lane']}: {len(document['tests'])} tests, "
            f"peak memory {document['peak_memory_mib']} MiB",
            Cost(**document["total"]),
            sum(test["reruns"] for test in document["tests"]),
        )
        for document in documents
    ]
    return [
        f"{'wall s':>8} {'own s':>8} {'machine s':>10} {'reruns':>7}",
        *lanes,
        *_summed("tier", tests, lambda test: test.tier),
        *_summed("file", tests, lambda test: test.file),
        *_longest(tests, fixtures),
        *(f"rerun: {test.test}" for test in tests if test.reruns),
    ]


def _test(one: Mapping[str, Any]) -> TestCost:
    phases = {when: Cost(**cost) for when, cost in one["phases"].items()}
    return TestCost(**{**one, "phases": phases})


def _fixture(one: Mapping[str, Any]) -> FixtureCost:
    parts = {part: Cost(**one[part]) for part in ("setup", "teardown")}
    return FixtureCost(**{**one, **parts})


def _row(name: str, cost: Cost, reruns: int = 0) -> str:
    counted = f"{reruns:7}" if reruns else " " * 7
    return f"{cost.wall:8.1f} {cost.own:8.1f} {cost.machine:10.1f} {counted}  {name}"


def _summed(what: str, tests: list[TestCost], key: Callable[[TestCost], str]) -> list[str]:
    sums: dict[str, Cost] = {}
    reruns: dict[str, int] = {}
    for test in tests:
        sums[key(test)] = sums.get(key(test), Cost()) + test.cost
        reruns[key(test)] = reruns.get(key(test), 0) + test.reruns
    first = sorted(sums, key=lambda name: -sums[name].wall)[:LONGEST]
    return [_row(f"{what} {name}", sums[name], reruns[name]) for name in first]


def _longest(tests: list[TestCost], fixtures: list[FixtureCost]) -> list[str]:
    rows = [(test.phases.get("call", Cost()), f"test {test.test}", test.reruns) for test in tests]
    rows += [(one.cost, f"fixture {one.fixture} ({one.times} times)", 0) for one in fixtures]
    rows.sort(key=lambda row: -row[0].wall)
    return [_row(name, cost, reruns) for cost, name, reruns in rows[: 2 * LONGEST]]


# --- The plugin -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", default="last", help="name of the report in .local/reports")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watch(), "slurmstack-watch")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(config.getoption("--lane")), "slurmstack-ledger")


def main(lanes: list[str]) -> None:
    """Print one table of these lanes, by default of all lanes with a report."""
    paths = [FOLDER / f"{lane}.json" for lane in lanes] or sorted(FOLDER.glob("*.json"))
    for line in table(json.loads(path.read_text()) for path in paths if path.exists()):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
