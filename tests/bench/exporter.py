"""Measure how much the exporter loads a large Slurm cluster, compared with a classic exporter.

A real slurmctld runs in a container. It has 5,000 nodes without a slurmd, 50,000 held jobs, and one
more node that runs jobs. No Kubernetes is needed.
"""

import contextlib
import re
import secrets
import shlex
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import httpx
from docker.models.containers import Container

from agents.exporter.sources import ENVIRONMENT, SNAPSHOT
from components import conventions as c
from components.settings import Settings
from components.settings.monitoring import Exporter
from tests.bench.accounting import weigh
from tests.bench.figures import Figures, say, seconds
from tests.bench.load import alternate
from tests.support.containers import containers, put
from tests.support.metrics import series
from tests.support.slurmctld import (
    Slurmctld,
    controller_address,
    prepare,
    start_controller,
    start_worker,
    without_jail,
)
from tests.support.stack import alone
from tests.support.waiting import eventually

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
"""Nodes without a slurmd. They have an address, so that slurmctld does not look up names."""
SUBMIT = f"""
for lab in $(seq {ARRAYS}); do
  job=$(sbatch --parsable --partition=large --array=0-{JOBS // ARRAYS - 1} --ntasks=2 --gres=gpu:1 \
    --mem=1000 --hold --output=/dev/null \\
    --account=lab$lab --job-name='a name of some length' --wrap=true)
  scontrol update jobid=${{job}}_0-{JOBS // ARRAYS - 2} comment=split
done
"""
"""Script that submits the jobs. `scontrol update` gives array tasks their own records, as if the
tasks had started. The jobs are held, because scheduling cycles would make the measured rates
vary."""
INTERVAL = Exporter().interval
"""Seconds between two reads (an exporter's requests to slurmctld for one set of metrics).

The same interval separates two scrapes of the classic exporter."""
READS = 6
FORKED = 3
CLASSIC = (
    *['squeue -a -r -h -o "%A|%u|%T|%C|%a|%P"'] * 4,
    "sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong",
    'sinfo -h -o "%R,%C"',
    'sinfo -h -o "%D|%T"',
    "sinfo -h -o %C",
    "sinfo -h -N -O NodeList,Gres,GresUsed",
    "sdiag",
)
"""Commands that a classic exporter (github.com/vpenso/prometheus-slurm-exporter) runs per scrape.
Its collectors for accounts, users, queue and partitions each run squeue."""
PAIRS = 3
WINDOW = 3 * INTERVAL + 2
"""Seconds that jobs run in each round. Normally, the exporter completes three reads in this time,
or two if slurmctld is too busy."""
BATCH = 40
THROUGHPUT = f"""
completed() {{ sdiag | awk '/^Jobs completed:/ {{print $3}}'; }}
all_but() {{ while [ "$(completed)" -lt $((before + sent - $1)) ]; do sleep 0.1; done; }}
before=$(completed) sent=0 begin=$(date +%s%N)
while [ $(($(date +%s%N) - begin)) -lt {WINDOW}000000000 ]; do
  seq {BATCH} | xargs -P4 -I% sbatch --quiet --partition=main --output=/dev/null --mem=100 \
    --wrap=true
  sent=$((sent + {BATCH}))
  all_but {BATCH}
done
all_but 0
echo $sent $(($(date +%s%N) - begin))
"""
"""Script that prints the number of jobs, and the nanoseconds until all have ended.

The script submits a batch of jobs while the jobs of the batch before it are still pending or
running, so that the node always has jobs. The script does not use squeue: squeue requests all jobs,
which is the load that the benchmark measures.
"""
PROGRAM = f"""
import os, resource, subprocess
subprocess.run(["{SNAPSHOT}", "nodes", "jobs"], stdout=subprocess.DEVNULL, check=True,
               env=os.environ | {ENVIRONMENT})
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Script that prints the peak memory in KiB of the largest program that the exporter runs.

A program's peak includes its parent's memory at the fork, so the script does not import `agents`.
"""
KIB, MB = 1024, 1e6
SCRAPED = "/tmp/scraped"
"""File with a line for each completed scrape of the classic exporter."""


@dataclass(frozen=True)
class Large:
    """The cluster, and the container of the exporter."""

    slurmctld: Slurmctld
    exporter: Slurmctld

    @contextlib.contextmanager
    def exporting(self) -> Iterator[str]:
        """Run the exporter, and yield its URL after its first read."""
        container: Container = self.exporter.container
        container.exec_run(
            ["python3", "-m", "agents.exporter"],
            environment={"INTERVAL": str(INTERVAL)},
            user=str(c.EXPORTER_ID),
            detach=True,
        )
        url = f"http://{self.exporter.address}:{c.EXPORTER_PORT}/metrics"
        try:
            eventually("the exporter has read Slurm once", lambda: _has_read(url))
            yield url
        finally:
            self._end("[a]gents.exporter")

    @contextlib.contextmanager
    def classic(self) -> Iterator[None]:
        """Run classic scrapes at intervals; the `with` block starts after the first scrape."""
        self.exporter.run(f"rm -f {SCRAPED}")
        each = f"sleep {INTERVAL} & ({self.forks}) && echo >>{SCRAPED}; wait"
        script = f"while true; do {each}; done # classic"
        self.exporter.container.exec_run(["bash", "-c", script], user="slurm", detach=True)
        try:
            eventually("the classic exporter was scraped", lambda: self.scraped() > 0)
            yield
        finally:
            self._end("[#] classic")

    def scraped(self) -> int:
        """Return the number of successful scrapes of the classic exporter."""
        return int(self.exporter.run(f"cat {SCRAPED} 2>/dev/null | wc -l"))

    def peak(self) -> int:
        """Return the exporter's peak memory in bytes since its start."""
        pid = "$(pgrep -o -f '[a]gents.exporter')"
        line = self.exporter.run(f"grep VmHWM: /proc/{pid}/status", user="root")
        return int(line.split()[1]) * KIB

    def peak_of_program(self) -> int:
        """Return the peak memory in bytes of the largest program that the exporter runs."""
        user = str(c.EXPORTER_ID)
        return int(self.exporter.run(f"python3 -c {shlex.quote(PROGRAM)}", user=user)) * KIB

    def _end(self, pattern: str) -> None:
        """Stop an exporter, and wait until its programs end: they would slow the next measurement.

        `pattern` matches the command line of the exporter, but not the command line of pkill.
        """
        self.exporter.run(f"pkill -f '{pattern}'", user="root")
        running = f"pgrep -f '{pattern}'; pgrep 'squeue|sinfo|sdiag|snapshot'; true"
        eventually("the exporter has ended", lambda: not self.exporter.run(running))

    forks = " && ".join(f"{command} >/dev/null" for command in CLASSIC)

    def calls(self) -> tuple[int, float]:
        """Return the number of RPCs that slurmctld has answered, and the total seconds."""
        by_type = self.slurmctld.run("sdiag").partition("by message type")[2].partition("by user")
        found = re.findall(r"count:(\d+) .* total_time:(\d+)", by_type[0])
        return sum(int(count) for count, _ in found), sum(int(took) for _, took in found) / 1e6


def measure(figures: Figures) -> None:
    say(f"starting slurmctld with {NODES} nodes and {JOBS} jobs")
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
        controller.install(config, files)
        controller.start()
        size = "CPUs=8 RealMemory=8000 Feature=cpu"
        worker = start_worker(start, secret, "cpu-0", size, controller)
        container = start(
            "agents",
            extra_hosts={controller_address(): controller.address},
            entrypoint=["env"],
        )
        exporter = prepare(container, secret)
        put(container, {f"{c.SLURM_ETC}/{name}": text for name, text in files.items()})
        weigh(slurmctld=controller.container, slurmd=worker.container, exporter=container)
        controller.run(SUBMIT)
        found = int(controller.run("squeue --noheader --format=%A | wc -l"))
        assert found == JOBS, found
        eventually("the node is idle", lambda: "idle" in controller.run("sinfo -h -n cpu-0 -o %t"))
        yield Large(controller, exporter)
        controller.stop()


def _files(config: Settings) -> dict[str, str]:
    files = without_jail(config)
    conf = re.sub(r"^MaxNodeCount=.*$", "", files["slurm.conf"], flags=re.MULTILINE)
    return files | {"slurm.conf": conf + MORE}


def _has_read(url: str) -> bool:
    try:
        return series(httpx.get(url, trust_env=False).content).get("slurm_up") == 1
    except httpx.TransportError:
        return False


def _cost(figures: Figures, cluster: Large) -> None:
    say(f"measuring {READS} reads of Slurm's data by this project's exporter")
    with cluster.exporting() as url:
        time.sleep(INTERVAL)
        (before, answered), begun = cluster.calls(), _reads(url)
        took, scrapes = [], []
        while (done := _reads(url) - begun) < READS:
            took.append(_read_seconds(url))
            # Scrape often, so that some scrapes happen while the exporter waits for slurmctld.
            for _ in range(INTERVAL // 2):
                scrapes.append(seconds(lambda: httpx.get(url, trust_env=False)))
                time.sleep(1)
        calls, answering = cluster.calls()
        peak = cluster.peak() / MB
    name = f"{NODES:,} nodes and {JOBS:,} jobs"
    figures.add(f"read of {name}, longest", max(took), at_most=3)
    figures.add("scrape, median", statistics.median(scrapes), at_most=0.5)
    figures.add("scrape, longest", max(scrapes), at_most=0.5)
    figures.add("peak memory of the exporter under scrapes, in MB", peak, at_most=300)
    both = peak + cluster.peak_of_program() / MB
    figures.add("peak memory of the exporter and its largest program, in MB", both, at_most=300)
    # Subtract one: `cluster.calls` runs sdiag, which itself sends a request to slurmctld.
    figures.add("requests to slurmctld in an interval", (calls - before - 1) / done, at_most=5)
    figures.add("slurmctld's time for requests in an interval", (answering - answered) / done)


def _reads(url: str) -> float:
    """Return the number of reads of nodes and jobs. Raises AssertionError if a read failed."""
    found = series(httpx.get(url, trust_env=False).content)
    reads, failures = (
        found[f'slurm_exporter_{name}_total{{source="cluster"}}']
        for name in ("reads", "read_failures")
    )
    assert not failures, f"{failures:g} of the exporter's {reads:g} reads of Slurm failed"
    return reads


def _read_seconds(url: str) -> float:
    """Return the duration of the last read in seconds."""
    found = series(httpx.get(url, trust_env=False).content)
    return sum(
        value for name, value in found.items() if name.startswith("slurm_exporter_read_duration")
    )


def _classic_cost(figures: Figures, cluster: Large) -> None:
    say("measuring scrapes of a classic exporter")
    before, answered = cluster.calls()
    took = [seconds(lambda: cluster.exporter.run(cluster.forks)) for _ in range(FORKED)]
    calls, answering = cluster.calls()
    figures.add("scrape of the classic exporter, median", statistics.median(took))
    figures.add("requests to slurmctld in a classic scrape", (calls - before - 1) / FORKED)
    figures.add("slurmctld's time for a classic scrape", (answering - answered) / FORKED)


def _beside_jobs(figures: Figures, cluster: Large) -> None:
    exporters = "no exporter, this project's exporter and a classic exporter"
    say(f"running jobs for {WINDOW} s each with {exporters}, {PAIRS} times")

    def ours() -> float:
        with cluster.exporting() as url:
            return _run_beside(cluster, lambda: _reads(url))

    def classic() -> float:
        with cluster.classic():
            return _run_beside(cluster, cluster.scraped)

    took = alternate(lambda: _run(cluster), ours, classic, rounds=PAIRS)
    what = f"jobs per second, ratio with a read every {INTERVAL} s/without exporter"
    _ratios(figures, what, [none / some for none, some, _ in took], at_least=0.97)
    what = f"jobs per second, ratio with classic scrapes every {INTERVAL} s/without exporter"
    _ratios(figures, what, [none / some for none, _, some in took])


def _ratios(
    figures: Figures, what: str, found: Sequence[float], *, at_least: float | None = None
) -> None:
    figures.add(what, statistics.median(found), at_least=at_least)
    figures.add(f"{what}, lowest of {len(found)}", min(found))
    figures.add(f"{what}, highest of {len(found)}", max(found))


def _run_beside(cluster: Large, reads: Callable[[], float]) -> float:
    """Call `_run` while an exporter runs, and return its result. `reads` returns the number of
    reads that the exporter has completed so far."""
    before = reads()
    took = _run(cluster)
    done = reads() - before
    assert done >= 2, (
        f"{done:g} exporter reads while jobs ran; expected 2 or more: "
        "raise WINDOW in tests/bench/exporter.py"
    )
    return took


def _run(cluster: Large) -> float:
    """Return the seconds for a hundred jobs."""
    code, output = cluster.slurmctld.container.exec_run(
        ["bash", "-c", THROUGHPUT], user="2000:2000", workdir="/tmp"
    )
    text = cast(bytes, output).decode()
    assert code == 0, text
    jobs, nanoseconds = map(int, text.split())
    return nanoseconds / 1e9 / jobs * 100
