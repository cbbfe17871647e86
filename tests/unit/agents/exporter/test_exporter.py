"""A scrape shows the data of the exporter's last reads, and which reads have failed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from agents.exporter.exporter import LEAST, OVERDUE, Exporter
from agents.exporter.sources import ReadError, Source
from agents.say import Level
from tests.support.metrics import Series, series

INTERVAL = 30.0


@dataclass
class World:
    """Fakes of Slurm, of the clock and of the log."""

    now: float = 1000.0
    takes: float = 1.0
    """Duration of each read, in seconds."""
    broken: set[str] = field(default_factory=set)
    asked: list[tuple[str, float]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def source(self, name: str) -> Source:
        def read(seconds: float) -> list[Family]:
            self.asked.append((name, seconds))
            self.now += min(self.takes, seconds)
            if name in self.broken:
                raise ReadError("slurmctld is silent")
            return [GaugeMetricFamily(f"slurm_{name}", "of a test", value=len(self.asked))]

        return Source(name, read)

    def exporter(self) -> Exporter:
        return Exporter(
            [self.source("nodes"), self.source("jobs")],
            [self.source("licenses"), self.source("reservations")],
            INTERVAL,
            clock=lambda: self.now,
            say=self.log,
        )

    def log(self, level: Level, text: str) -> None:
        self.logged.append(f"{level}: {text}")

    def turn(self, exporter: Exporter) -> Series:
        """Run one interval: read the sources, make a scrape, and wait. Return the scrape."""
        begun = self.now
        exporter.read()
        scraped = scrape(exporter)
        self.now = max(self.now, begun + INTERVAL)
        return scraped


@pytest.fixture
def world() -> World:
    return World()


def scrape(exporter: Exporter) -> Series:
    return series(exporter.metrics())


def shown(scraped: Series) -> set[str]:
    """Return the names of the series about Slurm. Leave out the series about the exporter."""
    ours = ("slurm_up", "slurm_exporter_", "process_", "python_")
    return {name for name in scraped if not name.startswith(ours)}


def ages(scraped: Series) -> dict[str, float]:
    return {
        name.partition('"')[2].rstrip('"}'): value
        for name, value in scraped.items()
        if name.startswith("slurm_exporter_data_age_seconds")
    }


def test_scrape_before_the_first_read_shows_slurm_as_down(world: World) -> None:
    scraped = scrape(world.exporter())

    assert scraped["slurm_up"] == 0
    assert shown(scraped) == set()
    assert world.asked == []


def test_many_scrapes_in_an_interval_read_slurm_once(world: World) -> None:
    exporter = world.exporter()
    first = world.turn(exporter)
    for _ in range(10):
        assert (
            shown(scrape(exporter))
            == shown(first)
            == {*("slurm_nodes", "slurm_jobs", "slurm_licenses")}
        )

    assert [name for name, _ in world.asked] == ["nodes", "jobs", "licenses"]
    assert first["slurm_up"] == 1


def test_each_interval_reads_one_of_the_rarely_changing_sources(world: World) -> None:
    exporter = world.exporter()
    for _ in range(4):
        world.turn(exporter)

    rounds = [[name for name, _ in world.asked][at : at + 3] for at in range(0, 12, 3)]
    assert [turn for *_, turn in rounds] == ["licenses", "reservations"] * 2
    assert all(always == ["nodes", "jobs"] for *always, _ in rounds)
    scraped = scrape(exporter)
    assert scraped['slurm_exporter_interval_seconds{source="nodes"}'] == INTERVAL
    assert scraped['slurm_exporter_interval_seconds{source="licenses"}'] == 2 * INTERVAL
    assert scraped['slurm_exporter_reads_total{source="licenses"}'] == 2


def test_data_age_is_measured_from_the_start_of_the_read(world: World) -> None:
    exporter = world.exporter()
    exporter.read()
    world.now += 7

    assert ages(scrape(exporter)) == {"nodes": 10, "jobs": 9, "licenses": 8}


def test_series_of_a_failed_source_disappear_and_others_stay(world: World) -> None:
    exporter = world.exporter()
    world.turn(exporter)
    world.broken = {"jobs"}
    scraped = world.turn(exporter)

    assert shown(scraped) == {"slurm_nodes", "slurm_licenses", "slurm_reservations"}
    assert scraped["slurm_up"] == 0
    assert scraped['slurm_exporter_read_up{source="jobs"}'] == 0
    assert scraped['slurm_exporter_read_up{source="nodes"}'] == 1
    assert scraped['slurm_exporter_read_failures_total{source="jobs"}'] == 1
    assert ages(scraped)["jobs"] > INTERVAL, "the age counts from the last good read"


def test_all_series_return_after_a_successful_read(world: World) -> None:
    exporter = world.exporter()
    world.turn(exporter)
    world.broken = {"nodes", "jobs", "licenses", "reservations"}
    for _ in range(3):
        scraped = world.turn(exporter)
    assert (shown(scraped), scraped["slurm_up"]) == (set(), 0)

    world.broken = set()
    assert {"slurm_nodes", "slurm_jobs"} <= shown(world.turn(exporter))
    assert world.turn(exporter)["slurm_up"] == 1
    silent = [line for line in world.logged if line.startswith("error: ") and "silent" in line]
    assert len(silent) == 4, "the log reports each silent source once"
    assert (
        len([line for line in world.logged if line.startswith("info: ") and "again" in line]) == 4
    )


def test_unreadable_jail_does_not_show_slurm_as_down(world: World) -> None:
    jail = replace(world.source("jail"), is_slurm=False)
    exporter = Exporter([world.source("nodes"), jail], [], INTERVAL, say=world.log)
    world.broken = {"jail"}
    exporter.read()
    scraped = scrape(exporter)

    assert shown(scraped) == {"slurm_nodes"}
    assert scraped["slurm_up"] == 1
    assert scraped['slurm_exporter_read_up{source="jail"}'] == 0
    world.broken = {"nodes"}
    exporter.read()
    assert scrape(exporter)["slurm_up"] == 0, "a readable jail does not change slurm_up"
    assert shown(scrape(exporter)) == {"slurm_jail"}


def test_partial_read_is_shown_and_reported_as_failed(world: World) -> None:
    def read(seconds: float) -> list[Family]:
        if "homes" not in world.broken:
            return world.source("jail").read(seconds)
        raise ReadError("homes: no answer", world.source("jail").read(seconds))

    jail = Source("jail", read, is_slurm=False)
    exporter = Exporter([jail], [], INTERVAL, clock=lambda: world.now, say=world.log)
    world.broken = {"homes"}
    for _ in range(2 * OVERDUE):
        scraped = world.turn(exporter)
        assert shown(scraped) == {"slurm_jail"}
        assert scraped['slurm_exporter_read_up{source="jail"}'] == 0

    assert scraped['slurm_exporter_read_failures_total{source="jail"}'] == 2 * OVERDUE
    assert world.logged == ["error: source jail: cannot read all data: homes: no answer"], (
        "the log reports the failure once"
    )
    world.broken = set()
    assert world.turn(exporter)['slurm_exporter_read_up{source="jail"}'] == 1


def test_overdue_data_is_not_shown(world: World) -> None:
    exporter = world.exporter()
    exporter.read()
    world.now += OVERDUE * INTERVAL - 5
    assert scrape(exporter)["slurm_up"] == 1
    world.now += 10

    scraped = scrape(exporter)
    assert scraped["slurm_up"] == 0
    assert shown(scraped) == {"slurm_licenses"}, "licenses are read less often"
    assert ages(scraped)["nodes"] > OVERDUE * INTERVAL


def test_sources_after_a_hanging_source_get_the_minimum_time(world: World) -> None:
    world.takes = 1000
    exporter = world.exporter()
    exporter.read()

    assert [seconds for _, seconds in world.asked] == [INTERVAL, LEAST, LEAST]


def test_exporter_shows_metrics_of_its_own_process(world: World) -> None:
    assert scrape(world.exporter())["process_resident_memory_bytes"] > 0


def test_exporter_works_without_rarely_changing_sources(world: World) -> None:
    exporter = Exporter([world.source("nodes")], [], INTERVAL, clock=lambda: world.now)
    exporter.read()

    assert names(world.asked) == ["nodes"]
    assert scrape(exporter)["slurm_up"] == 1


def names(asked: Iterable[tuple[str, float]]) -> list[str]:
    return [name for name, _ in asked]
