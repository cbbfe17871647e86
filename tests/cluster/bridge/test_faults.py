"""Restarts and losses neither duplicate nor lose a pod or a job."""

import random
import time
from collections import Counter

import pytest

from tests.cluster.bridge.lab import JOB, Lab
from tests.support.cluster import is_ready
from tests.support.waiting import becomes, eventually

KILLS = 20
BATCHES, SIZE = 4, 50
TOGETHER = 4
"""Number of pods that fit on both nodes."""


def phases(lab: Lab) -> dict[str, int]:
    return dict(Counter(one["status"]["phase"] for one in lab.pods().values()))


def records(lab: Lab) -> list[list[str]]:
    """Return name, state and start of each job of the pods that exist."""
    jobs = ",".join(pod["metadata"]["labels"][JOB] for pod in lab.pods().values())
    asked = f"sacct --noheader --parsable2 --allocations --jobs={jobs} --format=JobName,State,Start"
    return [line.split("|") for line in lab.cluster.run(asked).splitlines()]


@pytest.mark.timeout(1200)
def test_many_pods_start_in_order_while_the_bridge_is_killed(lab: Lab) -> None:
    """Kill the bridge at random moments. It loses and duplicates no pod and no job."""
    chance = random.Random(20)
    begin = lab.cluster.run("date +%Y-%m-%dT%H:%M:%S")
    for batch in range(BATCHES):
        # Kubernetes stores the time of creation in whole seconds.
        lab.create(*(lab.manifest(f"p{batch}-{index}", "true") for index in range(SIZE)))
        time.sleep(1.1)
    for _ in range(KILLS):
        time.sleep(chance.random() * 3)
        lab.kill_bridge()
        time.sleep(chance.random() * 2)
        # Kubernetes would start the same pod again only after a pause that grows with each kill.
        lab.cluster.kubectl("delete", "pod", lab.bridge()["metadata"]["name"])

    number = BATCHES * SIZE
    becomes("the number of pods in each phase", lambda: phases(lab), {"Succeeded": number}, 600)
    becomes(
        "the number of jobs in each state",
        lambda: Counter(state for _, state, _ in records(lab)),
        {"COMPLETED": number},
    )
    jobs = f"sacct --noheader --allocations --starttime={begin} --format=JobID | wc -l"
    assert int(lab.cluster.run(jobs)) == number, "some pods had more than one job"
    order = [name for _, name in sorted((start, name) for name, _, start in records(lab))]
    batches = [int(name.removeprefix("lab/p")[0]) for name in order]
    # Pods of the next batch may start with the last pods of a batch, as many as fit together.
    for place, batch in enumerate(batches):
        first, last = SIZE * batch, SIZE * (batch + 1)
        assert first - 2 * TOGETHER <= place < last + 2 * TOGETHER, batches


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


def test_restart_of_the_api_server_keeps_running_and_waiting_pods(lab: Lab) -> None:
    names = [f"p{index}" for index in range(6)]
    lab.create(*map(lab.manifest, names))
    eventually("four pods run", lambda: phases(lab).get("Running") == 4, 120)
    running = {name: lab.job(name) for name in names if lab.phase(name) == "Running"}

    lab.cluster.kill_api_server()

    eventually("the API server answers", lambda: list(answering(lab)), 90)
    first, *others = running
    lab.delete(first)
    eventually("a waiting pod runs", lambda: phases(lab).get("Running") == 4, 120)
    for name in others:
        assert lab.phase(name) == "Running"
        assert lab.job(name) == running[name]
        assert lab.state(running[name]) == "RUNNING"


def answering(lab: Lab) -> list[str]:
    """Return the names of all pods, or nothing while the API server does not answer."""
    return lab.kubectl("get", "pods", "--output=name", check=False, timeout=30).split()


def test_another_pod_of_the_bridge_takes_over(lab: Lab) -> None:
    scale = ("scale", "deployment/bridge")
    lab.cluster.kubectl(*scale, "--replicas=2")
    try:
        eventually("two pods of the bridge run", lambda: len(ready(lab)) == 2, 90)
        pods = {pod["metadata"]["name"]: pod for pod in lab.cluster.pods("bridge")}
        holder = acting(lab)
        (other,) = pods.keys() - {holder}
        # A frozen process does not release its lease, as the process of a lost machine.
        lab.signal("STOP", pods[holder])
        try:
            lab.create(lab.manifest("train"))
            lab.wait_for("train", timeout=90)
        finally:
            lab.signal("CONT", pods[holder])
        assert acting(lab) == other
        lab.create(lab.manifest("second"))
        lab.wait_for("second")
        assert lab.job("second") != lab.job("train")
    finally:
        lab.cluster.kubectl(*scale, "--replicas=1")
        eventually("one pod of the bridge is left", lambda: len(lab.cluster.pods("bridge")) == 1)


def acting(lab: Lab) -> str:
    """Return the pod of the bridge that acts."""
    asked = ("lease", "slurmstack-bridge", "--output=jsonpath={.spec.holderIdentity}")
    return lab.cluster.kubectl("get", *asked)


def ready(lab: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in lab.cluster.pods("bridge") if is_ready(pod)}


def test_running_pods_of_a_drained_node_continue_and_no_pod_starts_there(lab: Lab) -> None:
    lab.create(lab.manifest("before"))
    lab.wait_for("before")
    node = lab.cluster.node_on(lab.machine("before"))
    update = ("scontrol", "update", f"nodename={node}")
    lab.cluster.operate(*update, "state=drain", "reason=work")
    try:
        lab.create(*(lab.manifest(f"p{index}") for index in range(3)))
        eventually("two pods run", lambda: phases(lab).get("Running") == 3, 60)
        time.sleep(3)
        assert phases(lab) == {"Running": 3, "Pending": 1}
        there = [name for name in lab.pods() if lab.machine(name) == lab.machine("before")]
        assert there == ["before"]
    finally:
        lab.cluster.operate(*update, "state=resume")
    eventually("all pods run", lambda: phases(lab) == {"Running": 4}, 60)


def test_lost_machine_returns_only_after_its_pods_have_stopped(lab: Lab) -> None:
    # The test runs commands in the controller's pod, which needs the kubelet of its machine.
    controller = lab.cluster.pod(lab.cluster.controller())
    assert controller
    (machine,) = {lab.machine_of(node) for node in ("cpu-0", "cpu-1")} - {
        controller["spec"]["nodeName"]
    }
    lab.create(lab.manifest("train", nodeSelector={"kubernetes.io/hostname": machine}))
    lab.wait_for("train")
    job, node = lab.job("train"), lab.cluster.node_on(machine)
    with lab.cluster.frozen_kubelet(machine):
        # Do not wait until Slurm notices the loss. Only the kubelet really does not answer.
        lab.cluster.operate("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        eventually(
            "the pod is deleted", lambda: "deletionTimestamp" in lab.pod("train")["metadata"]
        )
        eventually("the node is drained", lambda: "slurmstack:pods" in reason(lab, node))
        assert lab.phase("train") == "Running"
        assert lab.state(job) == "NODE_FAIL"
    becomes("the pods", lambda: list(lab.pods()), [], 120)
    eventually("the bridge lifts its drain", lambda: "slurmstack:pods" not in reason(lab, node))
    if "DOWN" in reason(lab, node):
        lab.cluster.operate("scontrol", "update", f"nodename={node}", "state=resume")
    lab.cluster.wait_for_nodes(*lab.nodes, timeout=120)


def reason(lab: Lab, node: str) -> str:
    return lab.cluster.operate("scontrol", "show", "node", node, "--oneliner")


def test_pods_leave_a_machine_before_its_node_starts_again(lab: Lab) -> None:
    lab.create(lab.manifest("train"))
    lab.wait_for("train")
    machine = lab.machine("train")
    node = lab.cluster.node_on(machine)

    # No grace: the pod has no time to drain its node.
    lab.cluster.kubectl("delete", "pod", node, "--grace-period=0", "--force")

    becomes("the pods", lambda: list(lab.pods()), [], 90)
    lab.cluster.wait_for_nodes(*lab.nodes, timeout=120)
