"""A node of the stack, and what can be done to it."""

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
"""What some nvidia-smi printed, by its name in tests/unit/agents/checks/recorded."""


@dataclass(frozen=True)
class Node:
    """One of the nodes, from all sides."""

    cluster: Cluster
    name: str

    def root(self, script: str) -> str:
        """What a script of root's in its pod prints."""
        return self.cluster.in_pod(self.name, "slurmd", "sh", "-c", script)

    def brings(self, nvidia_smi: str) -> None:
        """From now on the node has such a nvidia-smi, a shell script."""
        self.root(
            f"cat >{NVIDIA_SMI}.new <<'EOF'\n#!/bin/sh\n{nvidia_smi}\nEOF\n"
            f"chmod 755 {NVIDIA_SMI}.new; mv {NVIDIA_SMI}.new {NVIDIA_SMI}"
        )

    def prints(self, recording: str) -> None:
        """From now on nvidia-smi prints what one printed elsewhere."""
        self.brings(f"cat <<'EOT'\n{recorded(recording)}EOT")

    @property
    def state(self) -> str:
        """As `idle` or `drain`."""
        return self.cluster.nodes().get(self.name, "")

    @property
    def reason(self) -> str:
        """Why it is out of service, or "none"; "" where Slurm does not say."""
        ask = f"sinfo --noheader --nodes={self.name} --format=%E"
        return self.cluster.ssh(ask, check=False).stdout.strip()

    @property
    def evidence(self) -> Evidence | None:
        """What its checks have said last."""
        ask = f"sinfo --noheader --nodes={self.name} --Format=Extra:1000"
        return Evidence.parse(self.cluster.run(ask))

    @property
    def machine(self) -> str:
        """The Kubernetes node that its pod is on."""
        ask = ("get", "pod", self.name, "-o", "jsonpath={.spec.nodeName}")
        return self.cluster.kubectl(*ask)

    def is_drained_for(self, source: str, timeout: float = 60) -> None:
        """Waits until it is, by a reason of ours."""
        eventually(
            f"{self.name} is drained for {source}",
            lambda: self.reason.startswith(f"slurmstack:{source}:"),
            timeout,
        )

    def is_back(self, timeout: float = 60) -> None:
        """Waits until it is in service."""
        eventually(f"{self.name} is back", lambda: self.state == "idle", timeout)

    def looks(self) -> Evidence:
        """The evidence of a look that begins after this call."""
        before = self.evidence
        at = before.at if before else 0

        def fresh() -> Evidence | None:
            found = self.evidence
            return found if found and found.at > at else None

        seen = eventually(f"{self.name} looks again", fresh)
        assert seen
        return seen


def operator(cluster: Cluster, *command: str) -> str:
    """What a command of Slurm's prints to an operator."""
    return cluster.in_pod(cluster.controller(), "slurmctld", *command)


def runs_now(cluster: Cluster, check: str) -> dict[str, Any]:
    """A long check's Job as its CronJob would make it; its status when it has ended."""
    job = f"now-{check}"
    cluster.kubectl("create", "job", job, f"--from=cronjob/longcheck-{check}")
    try:
        return eventually(
            f"{check} has run",
            lambda: {
                condition["type"]: condition
                for one in cluster.objects("jobs")
                if one["metadata"]["name"] == job
                for condition in one["status"].get("conditions", ())
                if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
            },
            240,
        )
    finally:
        cluster.kubectl("delete", "job", job, timeout=120)


def scraped(cluster: Cluster, component: str) -> Series:
    """The metrics that a component shows, asked for inside its pod; none while it does not."""
    url = f"http://127.0.0.1:{c.SCRAPED[component]}/metrics"
    ask = f"import urllib.request as u; print(u.urlopen('{url}', timeout=10).read().decode())"
    command = ("exec", f"deploy/{component}", "--", "python3", "-c", ask)
    return series(cluster.kubectl(*command, check=False).encode())
