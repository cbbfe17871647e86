"""Jobs and pods compete for the same CPUs, and never use more than a node has."""

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bridge.lab import JOB, NAMESPACE, Lab
from tests.support.waiting import becomes

CPUS = 2
"""CPUs of each node."""
BATCHES, SIZE = 4, 50
SECONDS = 40
"""Time for which a test watches the nodes."""


def sampled(lab: Lab) -> Any:
    """Watch the nodes from both sides; see sampler.py."""
    program = (Path(__file__).parent / "sampler.py").read_text()
    arguments = (str(SECONDS), str(CPUS), NAMESPACE)
    command = ("exec", "--stdin", "deploy/bridge", "-c", "bridge", "--", "python3", "-")
    text = lab.cluster.kubectl(*command, *arguments, stdin=program, timeout=SECONDS + 120)
    return json.loads(text)


def test_jobs_and_pods_never_exceed_a_node(lab: Lab) -> None:
    chance = random.Random(26)
    created = 0
    with ThreadPoolExecutor() as threads:
        watching = threads.submit(sampled, lab)
        while not watching.done():
            if chance.randrange(2) == 0:
                created += 1
                lab.create(lab.manifest(f"p{created}", f"sleep {chance.randint(1, 6)}"))
            else:
                seconds, cpus = chance.randint(1, 6), chance.randint(1, 2)
                script = f"#!/bin/sh\nsleep {seconds}"
                lab.cluster.submit("~", script, f"--cpus-per-task={cpus}", "--output=/dev/null")
            time.sleep(chance.random())
        found = watching.result()

    assert found["exceeded"] == []
    # Jobs and pods together have filled both nodes, and the samples were frequent.
    assert list(found["most"].values()) == [CPUS, CPUS]
    assert found["samples"] > 3 * SECONDS, found


def order(lab: Lab, pods: dict[str, Any]) -> list[str]:
    """Return the pods in the order in which their jobs started."""
    jobs = ",".join(pod["metadata"]["labels"][JOB] for pod in pods.values())
    asked = f"sacct --noheader --parsable2 --allocations --jobs={jobs} --format=JobName,Start"
    lines = [line.split("|") for line in lab.cluster.run(asked).splitlines()]
    return [name for name, _ in sorted(lines, key=lambda line: line[1])]


@pytest.mark.timeout(900)
def test_many_pods_start_in_the_order_of_their_creation(lab: Lab) -> None:
    for batch in range(BATCHES):
        # Kubernetes stores the time of creation in whole seconds.
        names = [f"p{batch}-{index}" for index in range(SIZE)]
        lab.create(*(lab.manifest(name, "true") for name in names))
        time.sleep(1.1)

    def phases() -> dict[str, int]:
        return dict(Counter(one["status"]["phase"] for one in lab.pods().values()))

    becomes("the number of pods in each phase", phases, {"Succeeded": BATCHES * SIZE}, 600)
    batches = [int(name.removeprefix("lab/p")[0]) for name in order(lab, lab.pods())]
    # Pods of the next batch may start with the last pods of a batch, as many as fit on both nodes.
    for place, batch in enumerate(batches):
        assert SIZE * batch - 2 * CPUS <= place < SIZE * (batch + 1) + 2 * CPUS, batches
