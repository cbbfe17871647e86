"""Jobs and pods compete for the same CPUs, and never use more than a node has."""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cluster.bridge.lab import NAMESPACE, Lab

CPUS = 2
"""CPUs of each node."""
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
