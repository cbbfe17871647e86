"""A cluster in containers, and the metrics of its exporter."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from components import conventions as c
from components.settings import Settings
from tests.support.slurmctld import Slurmctld, without_jail
from tests.support.waiting import becomes

USER, UID = "researcher", "2000:2000"
INTERVAL = 1
SLURM = {
    "extra": {"slurm.conf": ["Licenses=cad:10"]},
    # Use a short timeout, because a test waits until slurmctld sets a silent node down.
    "timeouts": {"slurmd": 30},
}
ENVIRONMENT = {
    "INTERVAL": str(INTERVAL),
    "TOP": "2",
    # The exporter only measures the jail, so any file system can stand for the jail.
    "JAIL": "/",
    # Every container has /dev/shm as a second file system.
    "VOLUMES": "/dev/shm",
    "PORT": str(c.EXPORTER_PORT),
}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Scrape:
    text: str
    series: Series

    def value(self, name: str, **labels: str) -> float:
        """Return the value of a series; -1 if it is missing."""
        return self.series.get((name, frozenset(labels.items())), -1)

    def labels_of(self, name: str) -> list[dict[str, str]]:
        """Return the labels of each series with this name."""
        return [dict(labels) for series_name, labels in self.series if series_name == name]


def parsed(text: str) -> Scrape:
    series: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in series, f"duplicate series: {key}"
            series[key] = sample.value
    return Scrape(text, series)


@dataclass(frozen=True)
class Cluster:
    controller: Slurmctld
    exporter: Slurmctld
    workers: Mapping[str, Slurmctld]

    def scrape(self) -> Scrape:
        """Scrape the exporter, and parse the metrics with Prometheus' client library."""
        url = f"http://{self.exporter.address}:{c.EXPORTER_PORT}/metrics"
        return parsed(httpx.get(url, trust_env=False).raise_for_status().text)

    def now(self, intervals: int = 1) -> Scrape:
        """Return metrics with data that the exporter has read from Slurm since this call.

        In each interval, the exporter reads either reservations or licenses. New values of both
        therefore need two intervals.
        """

        def reads(scrape: Scrape) -> float:
            return scrape.value("slurm_exporter_reads_total", source="scheduler")

        # Add one, because a read that began earlier may be in progress.
        last = reads(self.scrape()) + 1 + intervals
        return self.wait_for("the exporter has read Slurm", lambda scrape: reads(scrape) >= last)

    def scrape_as(self, user: int, **changes: str) -> Scrape:
        """Run the exporter once as user `user`, and return its metrics."""
        environment = ENVIRONMENT | changes
        settings = " ".join(f"{name}={value}" for name, value in environment.items())
        command = f"env {settings} python3 -m agents.exporter --once"
        return parsed(self.exporter.run(command, user=f"{user}:{user}"))

    def wait_for(self, what: str, holds: Callable[[Scrape], object], seconds: float = 30) -> Scrape:
        """Return the first scrape for which `holds` is true. Raises AssertionError on timeout."""
        deadline = time.monotonic() + seconds
        while not holds(scrape := self.scrape()):
            message = f"timed out: expected that {what}; number of series: {len(scrape.series)}"
            assert time.monotonic() < deadline, f"{message}\n{self.controller.log()[-2000:]}"
            time.sleep(0.2)
        return scrape

    def becomes(self, job: str, state: str) -> None:
        """Wait until Slurm reports this state for a job."""
        becomes(f"the state of job {job}", lambda: self.controller.job_state(job), state)

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        quoted = " ".join(options)
        return self.controller.run(
            f"cd /tmp && sbatch --parsable --output=/dev/null {quoted} --wrap '{script}'", user=UID
        ).strip()


def etc(config: Settings) -> dict[str, str]:
    """Return Slurm's configuration files for nodes without a jail, by path."""
    return {f"{c.SLURM_ETC}/{file}": text for file, text in without_jail(config).items()}
