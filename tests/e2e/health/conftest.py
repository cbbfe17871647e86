"""A stack of its own, and what can be done to a node of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agents.drains import Evidence
from components import conventions as c
from images import tags
from tests.conftest import Deployed
from tests.e2e.cluster import Cluster, eventually, local_cluster, write_stack
from tests.unit.agents.checks.recordings import recorded
from tests.unit.agents.exporter.recordings import Series, series

INTERVAL = 10
"""Seconds between two looks of a node."""
NVIDIA_SMI = "/usr/local/bin/nvidia-smi"
HOOK_NAMESPACE = "hooks"
HOOK = f"http://receiver.{HOOK_NAMESPACE}.svc.cluster.local:8080/alerts"
"""Where alerts are posted."""
COLLECTOR_NAMESPACE = "collector"
COLLECTOR = f"http://receiver.{COLLECTOR_NAMESPACE}.svc.cluster.local:4318"
"""Where the daemons' lines are sent; who is there prints them, and answers nothing while a file
says so."""
AWAY = "/tmp/away"
RECEIVER = f"""
import gzip, http.server, json, os
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        if os.path.exists("{AWAY}"):
            return
        for group in json.loads(body)["resourceLogs"]:
            source = group["resource"]["attributes"]
            for scope in group["scopeLogs"]:
                for record in scope["logRecords"]:
                    print(json.dumps([source, record]), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 4318), Receiver).serve_forever()
"""
WELL = "h100-535.183.01"
BROKEN = "a100-sram-uncorrectable"
"""What some nvidia-smi printed, by its name in tests/unit/agents/checks/recorded."""


def watchful(values: dict[str, Any]) -> None:
    values["health"] = {"interval": INTERVAL, "node_states": ["any"]}
    # Checks of GPUs ask for a nvidia-smi, which the tests bring.
    values["nodesets"][0]["checks"] = {
        "disk": {"paths": ["/dev/shm"], "max_percent": 30},
        "gpu-ecc": {},
        "gpu-row-remap": {},
    }
    # Of the memory nobody has that much.
    values["long_checks"] = {
        "checks": [{"name": "network"}, {"name": "cpu-memory", "threshold": 1_000_000_000}]
    }
    values["monitoring"]["bundled"]["webhook"] = HOOK
    values["monitoring"]["logs"] = {"endpoint": COLLECTOR}
    values["reconciler"] = {
        "interval": 5,
        "share": 1,
        "rollout": 60,
        # Nothing is mended: that would undo what the tests do to a node's pod. But for one cause.
        "ladder": ["recheck"],
        "ladders": {"gpu-row-remap": ["restart", "reboot", "replace"]},
        "back_off": 10,
        "replace_age": 0,
    }


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


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """A stack of its own, which looks at its nodes often, and whose machines may be broken."""
    ports = local_cluster(2, api_port=18445, ssh_port=14224)
    with deployed(write_stack("test-health", watchful, cluster=ports)) as stack:
        # One that a run left behind goes first.
        stack.kubectl("delete", "namespace", COLLECTOR_NAMESPACE, "--ignore-not-found")
        receive(stack, COLLECTOR_NAMESPACE, 4318, RECEIVER)
        yield stack


def receive(cluster: Cluster, namespace: str, port: int, program: str) -> None:
    """Runs a program of Python's that listens, as `receiver` in a namespace of its own."""
    there = f"--namespace={namespace}"
    cluster.kubectl("create", "namespace", namespace)
    # On the machine that no test takes away.
    with cluster.cordoned("node-1"):
        cluster.kubectl(
            *("run", "receiver", there, f"--image={tags.reference('agents')}", f"--port={port}"),
            *("--expose", "--image-pull-policy=IfNotPresent", "--command", "--"),
            *("python3", "-c", program),
        )
        cluster.kubectl("wait", there, "--for=condition=Ready", "pod/receiver", "--timeout=60s")


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    """A node in service, whose GPUs are well."""
    one = Node(cluster, "cpu-1")
    one.prints(WELL)
    one.is_back(120)
    yield one
    one.prints(WELL)
    one.is_back(120)
