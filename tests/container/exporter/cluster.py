"""A cluster in containers, and what its exporter shows."""

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
    # No longer than a test can wait for a node that is silent.
    "timeouts": {"slurmd": 30},
}
ENVIRONMENT = {
    "INTERVAL": str(INTERVAL),
    "TOP": "2",
    # Of any file system it is told in the same way.
    "JAIL": "/",
    # A second one, which every container has to itself.
    "VOLUMES": "/dev/shm",
    "PORT": str(c.EXPORTER_PORT),
}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Scrape:
    text: str
    series: Series

    def value(self, name: str, **labels: str) -> float:
        """A series' value; -1 where there is none."""
        return self.series.get((name, frozenset(labels.items())), -1)

    def named(self, name: str) -> list[dict[str, str]]:
        """The labels of each series of a name."""
        return [dict(labels) for found, labels in self.series if found == name]


def parsed(text: str) -> Scrape:
    series: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in series, f"twice: {key}"
            series[key] = sample.value
    return Scrape(text, series)


@dataclass(frozen=True)
class Cluster:
    controller: Slurmctld
    exporter: Slurmctld
    workers: Mapping[str, Slurmctld]

    def scrape(self) -> Scrape:
        """What Prometheus sees, by its client library's own parser."""
        url = f"http://{self.exporter.address}:{c.EXPORTER_PORT}/metrics"
        return parsed(httpx.get(url, trust_env=False).raise_for_status().text)

    def now(self, intervals: int = 1) -> Scrape:
        """What is shown after so many intervals of all that Slurm says when this is called.

        Of reservations and licenses one is read in each, so that both take two.
        """

        def reads(seen: Scrape) -> float:
            return seen.value("slurm_exporter_reads_total", source="scheduler")

        # The first may have begun before.
        last = reads(self.scrape()) + 1 + intervals
        return self.shows("further reads", lambda seen: reads(seen) >= last)

    def told(self, user: int, **changes: str) -> Scrape:
        """What an exporter of this user's has read once."""
        environment = ENVIRONMENT | changes
        settings = " ".join(f"{name}={value}" for name, value in environment.items())
        command = f"env {settings} python3 -m agents.exporter --once"
        return parsed(self.exporter.run(command, user=f"{user}:{user}"))

    def shows(self, what: str, holds: Callable[[Scrape], object], seconds: float = 30) -> Scrape:
        """The first scrape that something holds of. Fails the test, naming it, where none comes."""
        deadline = time.monotonic() + seconds
        while not holds(scrape := self.scrape()):
            in_vain = f"not: {what}; the last scrape has {len(scrape.series)} series"
            assert time.monotonic() < deadline, f"{in_vain}\n{self.controller.log()[-2000:]}"
            time.sleep(0.2)
        return scrape

    def becomes(self, job: str, state: str) -> None:
        """Waits until Slurm itself says so of a job."""
        becomes(f"job {job}", lambda: self.controller.job_state(job), state)

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        quoted = " ".join(options)
        return self.controller.run(
            f"cd /tmp && sbatch --parsable --output=/dev/null {quoted} --wrap '{script}'", user=UID
        ).strip()


def etc(config: Settings) -> dict[str, str]:
    """Slurm's files of nodes without a jail, by their paths."""
    return {f"{c.SLURM_ETC}/{file}": text for file, text in without_jail(config).items()}
