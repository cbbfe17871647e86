"""Faults that become one by lasting, told to whoever must know of them: `make soak`."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.health import faults
from tests.e2e.health.conftest import Node
from tests.e2e.health.watching import Watch, impatient, watched

pytestmark = pytest.mark.soak
PACE = 10
"""How many times as fast as in the alerts' own files time runs in these tests."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@pytest.fixture(scope="module")
def watch(cluster: Cluster) -> Iterator[Watch]:
    def with_gpus(values: dict[str, Any]) -> None:
        values["monitoring"]["dcgm_namespace"] = faults.GPUS_NAMESPACE

    with faults.gpus(cluster):
        try:
            with cluster.edited(with_gpus):
                cluster.deploy("up")
                with watched(cluster, lambda text: hastened(impatient(text))) as found:
                    yield found
        finally:
            cluster.deploy("up")


def hastened(text: str) -> str:
    """The same file, with each range and each limit in seconds shorter; a day has ten seconds."""

    def range_(found: re.Match[str]) -> str:
        return f"{found[1]}{max(int(found[2]) * _UNITS[found[3]] // PACE, 30)}s"

    text = re.sub(r"(\[|\boffset )(\d+)([smhd])\b", range_, text)
    text = re.sub(r"(_seconds\S*) > (\d{3,})\b", lambda m: f"{m[1]} > {int(m[2]) // PACE}", text)
    return re.sub(r"> (\d+) \* 86400\b", r"> \1 * 10", text)


FAULTS: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], set[str]]] = {
    "no node answers": (faults.silent_nodes, {"SlurmNodesDown"}),
    "a node comes and goes": (faults.flapping, {"SlurmNodeFlapping"}),
    "slurmdbd is gone": (faults.records_that_wait, {"SlurmAccountingNotWritten"}),
    "nothing is scheduled": (faults.blocked_queue, {"SlurmQueueStuck"}),
    "slurmctld is held up": (
        faults.slow_submit_script,
        {"SlurmRpcsSlow", "SlurmServerThreadsHigh"},
    ),
    "the schedulers are starved": (faults.starved_scheduler, {"SlurmSchedulerSlow"}),
    "munged hangs": (faults.hanging_munged, {"SlurmMungeTrouble"}),
    "clocks differ": (faults.wrong_clock, {"SlurmClockTrouble"}),
    "checks cannot run": (faults.checks_that_cannot_run, {"SlurmChecksNotRunning"}),
    "long checks do not begin": (
        faults.long_checks_that_do_not_begin,
        {"SlurmLongChecksNotRunning"},
    ),
    "memory is slow": (faults.slow_memory, {"SlurmLongCheckBad"}),
    "the jail is silent": (faults.jail_without_an_answer, {"SlurmExporterStale"}),
    "the jail is full": (faults.full_jail, {"SlurmJailNearlyFull"}),
    "the jail is full of files": (faults.jail_full_of_files, {"SlurmJailFilesNearlyFull"}),
    "the jail fills up": (faults.jail_that_fills_up, {"SlurmJailFullSoon"}),
    "a machine's disk is full": (faults.full_machine, {"MachineDiskNearlyFull"}),
    "a GPU is ill": (faults.ill_gpu, {"GpuXid", "GpuRowRemapFailed", "GpuHot"}),
    "Prometheus cannot read its files": (
        faults.refused_configuration,
        {"MonitoringConfigRefused"},
    ),
    "the collector of logs is gone": (faults.away_collector, {"SlurmLogsNotSent"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_lasts_is_told(watch: Watch, node: Node, fault: str) -> None:
    broken, alerts = FAULTS[fault]
    watch.is_told_of(broken(watch.cluster), alerts, 600)
