"""Restarts and losses neither duplicate nor lose a pod or a job."""

import random
import time
from collections import Counter

from tests.cluster.bridge.lab import Lab
from tests.support.waiting import becomes, eventually

KILLS = 20


def phases(lab: Lab) -> dict[str, int]:
    return dict(Counter(one["status"]["phase"] for one in lab.pods().values()))


def records(lab: Lab, begin: str) -> Counter[str]:
    """Return the number of jobs of each pod since a time, by the pod's name, and `state`."""
    asked = f"sacct --noheader --parsable2 --allocations --starttime={begin} --format=JobName,State"
    lines = [line.split("|") for line in lab.cluster.run(asked).splitlines()]
    return Counter(f"{name} {state}" for name, state in lines if name.startswith("lab/"))


def test_bridge_that_is_killed_at_random_moments_loses_and_duplicates_nothing(lab: Lab) -> None:
    chance = random.Random(20)
    begin = lab.cluster.run("date +%Y-%m-%dT%H:%M:%S")
    names = [f"p{index:02}" for index in range(KILLS)]
    for name in names:
        lab.create(lab.manifest(name, f"sleep {chance.randint(1, 8)}"))
        time.sleep(chance.random() * 2)
        (bridge,) = [pod["metadata"]["name"] for pod in lab.cluster.pods("bridge")]
        lab.cluster.signal("KILL", "python3", bridge, "bridge", check=False)

    becomes("the number of pods in each phase", lambda: phases(lab), {"Succeeded": KILLS}, 240)
    wanted = Counter(f"lab/{name} COMPLETED" for name in names)
    becomes("the number of jobs of each pod", lambda: records(lab, begin), wanted, 60)


def test_restart_of_slurmctld_keeps_running_and_waiting_pods(lab: Lab) -> None:
    names = [f"p{index}" for index in range(6)]
    lab.create(*map(lab.manifest, names))
    eventually("four pods run", lambda: phases(lab).get("Running") == 4, 120)
    uids = {name: pod["metadata"]["uid"] for name, pod in lab.pods().items()}
    running = [name for name in names if lab.phase(name) == "Running"]

    lab.cluster.kubectl("delete", "pod", lab.cluster.controller(), timeout=120)

    lab.delete(*running[:2])
    eventually("the waiting pods run", lambda: phases(lab).get("Running") == 4, 120)
    for name in running[2:]:
        assert lab.pod(name)["metadata"]["uid"] == uids[name]
        assert lab.phase(name) == "Running"


def test_pods_leave_a_machine_before_its_node_starts_again(lab: Lab) -> None:
    lab.create(lab.manifest("train"))
    lab.wait_for("train")
    machine = lab.machine("train")
    node = lab.cluster.node_on(machine)

    # No grace: the pod has no time to drain its node.
    lab.cluster.kubectl("delete", "pod", node, "--grace-period=0", "--force")

    becomes("the pods", lambda: list(lab.pods()), [], 90)
    lab.cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
