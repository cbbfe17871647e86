"""Jobs and pods compete for the same CPUs, and never use more than a node has."""

import json
import random
import time
from collections import Counter
from typing import Any

from tests.cluster.bridge.lab import JOB, Lab
from tests.support.waiting import becomes, patience

CPUS = 2
"""CPUs of each node."""
BATCHES, SIZE = 4, 10
SECONDS = 40
"""Shortest time for which a test watches the nodes."""


class Watch:
    """What uses the CPUs of each node, from both sides."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.samples = 0
        self.most: Counter[str] = Counter()
        """Largest number of CPUs in use at once, by node."""
        workers = lab.cluster.pods("worker")
        self._nodes = {one["spec"]["nodeName"]: one["metadata"]["name"] for one in workers}

    def sample(self) -> None:
        # A pod counts only if it runs both before and after Slurm was asked.
        before = self._running()
        jobs = self._jobs()
        after = self._running()
        used = jobs + Counter(before[name] for name in before.keys() & after.keys())
        for node, cpus in used.items():
            assert cpus <= CPUS, f"{node}: {dict(jobs)} CPUs of jobs, pods {sorted(before)}"
            self.most[node] = max(self.most[node], cpus)
        self.samples += 1

    def _running(self) -> dict[str, str]:
        """Return the node of each pod that has a machine and has not stopped. Each uses a CPU."""
        return {
            name: self._nodes[one["spec"]["nodeName"]]
            for name, one in self._lab.pods().items()
            if one["spec"].get("nodeName") and one["status"]["phase"] in ("Pending", "Running")
        }

    def _jobs(self) -> Counter[str]:
        """Return the CPUs of the jobs that are no pod's, by node."""
        text = self._lab.cluster.run("scontrol show jobs --json")
        found: Counter[str] = Counter()
        for job in json.loads(text)["jobs"]:
            if "RUNNING" in job["job_state"] and not job["admin_comment"]:
                for node in job["job_resources"]["nodes"]["allocation"]:
                    found[node["name"]] += node["cpus"]["count"]
        return found


def test_jobs_and_pods_never_exceed_a_node(lab: Lab) -> None:
    chance = random.Random(26)
    watch = Watch(lab)
    begin = time.monotonic()
    created = 0
    # Continue until jobs and pods together have filled a node.
    while time.monotonic() < begin + SECONDS or CPUS not in watch.most.values():
        assert time.monotonic() < begin + 3 * SECONDS * patience(), dict(watch.most)
        if chance.randrange(3) == 0:
            created += 1
            lab.create(lab.manifest(f"p{created}", f"sleep {chance.randint(1, 6)}"))
        if chance.randrange(4) == 0:
            seconds, cpus = chance.randint(1, 6), chance.randint(1, 2)
            script = f"#!/bin/sh\nsleep {seconds}"
            lab.cluster.submit("~", script, f"--cpus-per-task={cpus}", "--output=/dev/null")
        watch.sample()
    assert watch.samples > 20


def order(lab: Lab, pods: dict[str, Any]) -> list[str]:
    """Return the pods in the order in which their jobs started."""
    jobs = ",".join(pod["metadata"]["labels"][JOB] for pod in pods.values())
    asked = f"sacct --noheader --parsable2 --allocations --jobs={jobs} --format=JobName,Start"
    lines = [line.split("|") for line in lab.cluster.run(asked).splitlines()]
    return [name for name, _ in sorted(lines, key=lambda line: line[1])]


def test_many_pods_start_in_the_order_of_their_creation(lab: Lab) -> None:
    for batch in range(BATCHES):
        # Kubernetes stores the time of creation in whole seconds.
        names = [f"p{batch}-{index}" for index in range(SIZE)]
        lab.create(*(lab.manifest(name, "sleep 1") for name in names))
        time.sleep(1.1)

    def phases() -> dict[str, int]:
        return dict(Counter(one["status"]["phase"] for one in lab.pods().values()))

    becomes("the number of pods in each phase", phases, {"Succeeded": BATCHES * SIZE}, 240)
    batches = [int(name.removeprefix("lab/p")[0]) for name in order(lab, lab.pods())]
    # Pods of the next batch may start with the last pods of a batch, as many as fit on both nodes.
    for place, batch in enumerate(batches):
        assert SIZE * batch - 2 * CPUS <= place < SIZE * (batch + 1) + 2 * CPUS, batches
