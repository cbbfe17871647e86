"""What it costs to read a large Slurm as metrics, beside how exporters commonly do it.

A real slurmctld with 5,000 nodes and 50,000 jobs that wait, in a container; besides them one node
that jobs run on. No Kubernetes is needed.
"""

import contextlib
import re
import secrets
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import httpx
from docker.models.containers import Container

from components import conventions as c
from components.settings import Settings
from components.slurmconf import config_files
from tests.bench.figures import Figures, say, seconds
from tests.bench.load import ROUNDS, alternate
from tests.slurmctld.conftest import (
    Slurmctld,
    containers,
    controller_address,
    eventually,
    prepare,
    put,
    start_controller,
    start_worker,
)
from tests.unit.agents.exporter.recordings import series
from tests.unit.components.stack import alone

NODES, JOBS = 5000, 50_000
ARRAYS = 10
MORE = f"""
GresTypes=gpu
MaxNodeCount={NODES + 10}
MaxArraySize={JOBS}
NodeName=gpu-[0-{NODES - 1}] NodeHostname=localhost NodeAddr=127.0.0.1 \
Port=[20000-{20000 + NODES - 1}] CPUs=128 RealMemory=1000000 Gres=gpu:h100:8 State=DOWN
PartitionName=large Nodes=gpu-[0-{NODES - 1}] PriorityTier=1
PartitionName=other Nodes=gpu-[0-99] PriorityTier=1
"""
"""No slurmd is behind these nodes; a name that led nowhere would be looked up."""
SUBMIT = f"""
for lab in $(seq {ARRAYS}); do
  job=$(sbatch --parsable --partition=large --array=0-{JOBS // ARRAYS - 1} --ntasks=2 --gres=gpu:1 \
    --mem=1000 --output=/dev/null --account=lab$lab --job-name='a name of some length' --wrap=true)
  scontrol update jobid=${{job}}_0-{JOBS // ARRAYS - 2} nice=1
done
"""
"""An update gives tasks of an array records of their own, as they have once they run."""
OFTEN = 10
"""Seconds between two reads where these are measured."""
RARELY = 30
"""The same where jobs run beside: by default."""
READS = 6
SCRAPES = 20
CLASSIC = (
    *['squeue -a -r -h -o "%A|%u|%T|%C|%a|%P"'] * 4,
    "sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong",
    'sinfo -h -o "%R,%C"',
    'sinfo -h -o "%D|%T"',
    "sinfo -h -o %C",
    "sinfo -h -N -O NodeList,Gres,GresUsed",
    "sdiag",
)
"""What a classic exporter runs for each scrape: by github.com/vpenso/prometheus-slurm-exporter,
whose accounts, users, queue and partitions each run squeue anew."""
RUN = 200
THROUGHPUT = f"""
completed() {{ sdiag | awk '/^Jobs completed:/ {{print $3}}'; }}
end=$(($(completed) + {RUN}))
begin=$(date +%s%N)
seq {RUN} | xargs -P4 -I% sbatch --quiet --partition=main --output=/dev/null --mem=100 --wrap=true
while [ "$(completed)" -lt $end ]; do sleep 0.1; done
echo $(($(date +%s%N) - begin))
"""
"""Nanoseconds until so many jobs are over, from the first submission on.

squeue would ask for all jobs each time, which is what is measured here.
"""
PEAK = """
import resource, sys
from agents.exporter.__main__ import main
sys.stdout = open("/dev/null", "w")
main(["--once"])
own, run = (resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print((own + run) / 1024, file=sys.__stdout__)
"""
"""Memory of the exporter and of the largest program that it runs, at their peaks, in MiB."""


@dataclass(frozen=True)
class Large:
    """The cluster, and where the exporter runs."""

    slurmctld: Slurmctld
    exporter: Slurmctld

    @contextlib.contextmanager
    def exporting(self, interval: int) -> Iterator[str]:
        """Lets the exporter run; where it is scraped, once it has read."""
        container: Container = self.exporter.container
        container.exec_run(
            ["python3", "-m", "agents.exporter"],
            environment={"INTERVAL": str(interval)},
            user=str(c.EXPORTER_ID),
            detach=True,
        )
        url = f"http://{self.exporter.address}:{c.EXPORTER_PORT}/metrics"
        try:
            eventually("it has read", lambda: _has_read(url))
            yield url
        finally:
            self.exporter.run("pkill -f agents.exporter", user="root")

    @contextlib.contextmanager
    def classic(self, interval: int) -> Iterator[None]:
        """Lets a classic exporter be scraped every so many seconds."""
        script = f"while true; do ({self.forks}); sleep {interval}; done # classic"
        self.exporter.container.exec_run(["bash", "-c", script], user="slurm", detach=True)
        try:
            yield
        finally:
            self.exporter.run("pkill -f '# classic'", user="root")

    forks = "; ".join(f"{command} >/dev/null" for command in CLASSIC)

    def calls(self) -> int:
        """Remote procedure calls that slurmctld has answered, but for those of this method."""
        found = re.findall(
            r"^\s+(\w+) +\( *\d+\) count:(\d+)",
            self.slurmctld.run("sdiag").partition("by message type")[2].partition("by user")[0],
            re.MULTILINE,
        )
        return sum(int(count) for _, count in found)


def measure(figures: Figures) -> None:
    say(f"slurmctld with {NODES} nodes and {JOBS} jobs")
    with large() as cluster:
        _cost(figures, cluster)
        _classic_cost(figures, cluster)
        _beside_jobs(figures, cluster)


@contextlib.contextmanager
def large() -> Iterator[Large]:
    secret = secrets.token_hex(64)
    config = alone(lambda values: values.update(slurm={"max_jobs": 4 * JOBS}))
    with containers("slurmstack-bench") as start:
        controller = start_controller(start, secret)
        files = _files(config)
        controller.install(config, **files)
        controller.run(f"rm {c.SLURM_ETC}/plugstack.conf", user="root")
        controller.start()
        put(
            start_worker(start, secret, "cpu-0", "CPUs=8 RealMemory=8000 Feature=cpu", controller)
            .container,
            {},
        )  # fmt: skip
        container = start(
            "agents",
            extra_hosts={controller_address(): controller.address},
            entrypoint=["env"],
        )
        exporter = prepare(container, secret)
        put(container, {f"{c.SLURM_ETC}/{name}": text for name, text in files.items()})
        controller.run(SUBMIT)
        found = int(controller.run("squeue --noheader --format=%A | wc -l"))
        assert found == JOBS, found
        eventually("a node is there", lambda: "idle" in controller.run("sinfo -h -n cpu-0 -o %t"))
        yield Large(controller, exporter)
        controller.stop()


def _files(config: Settings) -> dict[str, str]:
    files = dict(config_files(config))
    del files["plugstack.conf"]
    conf = re.sub(r"^MaxNodeCount=.*$", "", files["slurm.conf"], flags=re.MULTILINE)
    return files | {"slurm.conf": conf + MORE}


def _has_read(url: str) -> bool:
    try:
        return series(httpx.get(url, trust_env=False).content).get("slurm_up") == 1
    except httpx.TransportError:
        return False


def _cost(figures: Figures, cluster: Large) -> None:
    say(f"{READS} reads by the exporter")
    with cluster.exporting(OFTEN) as url:
        time.sleep(OFTEN)
        before, begun = cluster.calls(), _reads(url)
        took = []
        while (done := _reads(url) - begun) < READS:
            took.append(_read_seconds(url))
            time.sleep(OFTEN / 2)
        # One for the question itself.
        calls = (cluster.calls() - before - 1) / done
        scrapes = [seconds(lambda: httpx.get(url, trust_env=False)) for _ in range(SCRAPES)]
    peak = float(cluster.exporter.run(f"python3 -c '{PEAK}'", user=str(c.EXPORTER_ID)))
    name = f"{NODES:,} nodes and {JOBS:,} jobs"
    figures.add(f"read of {name}, longest", max(took), at_most=3)
    figures.add("scrape, median", statistics.median(scrapes), at_most=0.5)
    figures.add("scrape, longest", max(scrapes), at_most=0.5)
    figures.add("memory, in MiB", peak, at_most=300)
    figures.add("calls of slurmctld in an interval", calls, at_most=5)


def _reads(url: str) -> float:
    found = series(httpx.get(url, trust_env=False).content)
    return found['slurm_exporter_reads_total{source="cluster"}']


def _read_seconds(url: str) -> float:
    """How long the last round took."""
    found = series(httpx.get(url, trust_env=False).content)
    return sum(
        value for name, value in found.items() if name.startswith("slurm_exporter_read_duration")
    )


def _classic_cost(figures: Figures, cluster: Large) -> None:
    say("a classic exporter's scrape")
    took, calls = [], []
    for _ in range(3):
        before = cluster.calls()
        took.append(seconds(lambda: cluster.exporter.run(cluster.forks)))
        calls.append(cluster.calls() - before - 1)
    figures.add("scrape by forks of sinfo and squeue, median", statistics.median(took))
    figures.add("calls of slurmctld in a scrape by forks", statistics.median(calls))


def _beside_jobs(figures: Figures, cluster: Large) -> None:
    say(f"{RUN} jobs, without an exporter, with ours and with a classic one, {ROUNDS} times")

    def ours() -> float:
        with cluster.exporting(RARELY):
            return _run(cluster)

    def classic() -> float:
        with cluster.classic(RARELY):
            return _run(cluster)

    took = alternate(lambda: _run(cluster), ours, classic)
    ratio = statistics.median(none / some for none, some, _ in took)
    figures.add("jobs per second, with the exporter against without", ratio, at_least=0.97)
    ratio = statistics.median(none / some for none, _, some in took)
    figures.add("jobs per second, with forks as often against without", ratio)


def _run(cluster: Large) -> float:
    """Seconds for so many jobs."""
    code, output = cluster.slurmctld.container.exec_run(
        ["bash", "-c", THROUGHPUT], user="2000:2000", workdir="/tmp"
    )
    text = cast(bytes, output).decode()
    assert code == 0, text
    return int(text) / 1e9
