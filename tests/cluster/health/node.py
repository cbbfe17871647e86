"""A node of the stack and operations on it."""

from dataclasses import dataclass
from typing import Any

from agents.drains import Evidence
from components import conventions as c
from tests.support.cluster import Cluster
from tests.support.metrics import Series, series
from tests.support.recordings import recorded
from tests.support.waiting import eventually

NVIDIA_SMI = "/usr/local/bin/nvidia-smi"
WELL = "h100-535.183.01"
BROKEN = "a100-sram-uncorrectable"
"""Recorded outputs of nvidia-smi; names of files in tests/unit/agents/checks/recorded."""


@dataclass(frozen=True)
class Node:
    """A node, seen through Slurm, Kubernetes and its pod."""

    cluster: Cluster
    name: str

    def root(self, script: str) -> str:
        """Return the output of a script that root runs in the node's pod."""
        return self.cluster.in_pod(self.name, "slurmd", "sh", "-c", script)

    def brings(self, nvidia_smi: str) -> None:
        """Install a shell script as nvidia-smi."""
        self.root(
            f"cat >{NVIDIA_SMI}.new <<'EOF'\n#!/bin/sh\n{nvidia_smi}\nEOF\n"
            f"chmod 755 {NVIDIA_SMI}.new; mv {NVIDIA_SMI}.new {NVIDIA_SMI}"
        )

    def prints(self, recording: str) -> None:
        """Install an nvidia-smi that prints a recorded output."""
        self.brings(f"cat <<'EOT'\n{recorded(recording)}EOT")

    @property
    def state(self) -> str:
        """Return the node's state, such as `idle` or `drain`."""
        return self.cluster.nodes().get(self.name, "")

    @property
    def reason(self) -> str:
        """Return the reason of the drain: "none" without a drain, "" if Slurm does not answer."""
        ask = f"sinfo --noheader --nodes={self.name} --format=%E"
        return self.cluster.ssh(ask, check=False).stdout.strip()

    @property
    def evidence(self) -> Evidence | None:
        """Return the latest evidence: the result of the node's checks in Slurm's record."""
        ask = f"sinfo --noheader --nodes={self.name} --Format=Extra:1000"
        return Evidence.parse(self.cluster.run(ask))

    @property
    def machine(self) -> str:
        """Return the Kubernetes node of the node's pod."""
        ask = ("get", "pod", self.name, "-o", "jsonpath={.spec.nodeName}")
        return self.cluster.kubectl(*ask)

    def is_drained_for(self, source: str, timeout: float = 60) -> None:
        """Wait until the node is drained with the reason `slurmstack:SOURCE:…`."""
        eventually(
            f"{self.name} is drained for {source}",
            lambda: self.reason.startswith(f"slurmstack:{source}:"),
            timeout,
        )

    def is_back(self, timeout: float = 60) -> None:
        """Wait until the node is in service."""
        eventually(f"{self.name} is back", lambda: self.state == "idle", timeout)

    def looks(self) -> Evidence:
        """Wait for the next evidence of the node's checks, and return it."""
        before = self.evidence
        at = before.at if before else 0

        def fresh() -> Evidence | None:
            latest = self.evidence
            return latest if latest and latest.at > at else None

        evidence = eventually(f"{self.name} has run its checks again", fresh)
        assert evidence
        return evidence


def runs_now(cluster: Cluster, check: str) -> dict[str, Any]:
    """Run a long check's Job as its CronJob does; return the conditions of the ended Job."""
    job = f"now-{check}"
    cluster.kubectl("create", "job", job, f"--from=cronjob/longcheck-{check}")
    try:
        return eventually(
            f"{check} has run",
            lambda: {
                condition["type"]: condition
                for found in cluster.objects("jobs")
                if found["metadata"]["name"] == job
                for condition in found["status"].get("conditions", ())
                if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
            },
            240,
        )
    finally:
        cluster.kubectl("delete", "job", job, timeout=120)


def scraped(cluster: Cluster, component: str) -> Series:
    """Return a component's metrics, scraped in its pod; empty if the component does not answer."""
    url = f"http://127.0.0.1:{c.SCRAPED[component]}/metrics"
    ask = f"import urllib.request as u; print(u.urlopen('{url}', timeout=10).read().decode())"
    command = ("exec", f"deploy/{component}", "--", "python3", "-c", ask)
    return series(cluster.kubectl(*command, check=False).encode())
