"""Machines that stop answering, and the reconciler's steps to repair a machine."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from components import conventions as c
from tests.cluster.health.node import WELL, Node
from tests.cluster.health.receiving import (
    CLOUD,
    CLOUD_NAMESPACE,
    CLOUD_PORT,
    REPLACE,
    cloud_program,
    receive,
)
from tests.support.cluster import Cluster, is_ready
from tests.support.waiting import becomes, eventually

API = "node-0"
"""The machine that runs the Kubernetes API server."""
MACHINE = "node-1"
ROWS_PENDING = "a10-535.129.03-rows-pending"
STEPS = (
    "done: restart the pod of node ",
    f"done: request a reboot of machine {MACHINE} because of 'gpu-row-remap'",
    f"done: request the replacement of machine {MACHINE} because of 'gpu-row-remap'",
)
"""The reconciler's log messages, in this order."""


def pods_on(cluster: Cluster, component: str) -> dict[str, dict[str, Any]]:
    """Return the active pods on the machine whose component label meets a condition.

    `component` is the condition as in a label selector, such as `=worker`.
    """
    return {
        pod["metadata"]["name"]: pod
        for pod in cluster.objects("pods", f"slurmstack.dev/component{component}")
        if pod["spec"].get("nodeName") == MACHINE
        and pod["status"]["phase"] in ("Pending", "Running")
    }


OTHERS = f" notin ({c.WORKER}, {c.REBOOTER}, {c.NODE_EXPORTER})"
"""Label condition for pods that can leave the machine. Rebooters and node-exporters stay."""


def others_leave(cluster: Cluster) -> None:
    """Move the pods of OTHERS off the machine. slurmctld's second pod may return there later."""
    deleted = set[str]()

    def others() -> list[str]:
        names = set(pods_on(cluster, OTHERS))
        if new := names - deleted:
            # Ignore missing pods, because a pod that was already terminating may no longer exist.
            cluster.kubectl("delete", "pod", "--ignore-not-found", "--wait=false", *sorted(new))
            deleted.update(new)
        return sorted(names)

    with cluster.cordoned(MACHINE):
        becomes("the list of other pods on the machine", others, [], 300)
        # Wait for the new pods, which a StatefulSet creates only after the old pods are gone.
        cluster.wait_for_rollouts()


@pytest.fixture
def alone(cluster: Cluster) -> Node:
    """A node in service on a machine without other Slurm pods, so that tests can stop the machine.

    A login node would stop with the machine, and a ready pod would prevent a reboot.
    """
    others_leave(cluster)
    while any(is_ready(pod) for pod in pods_on(cluster, OTHERS).values()):
        others_leave(cluster)
    # Evictions in other tests may have moved both Slurm nodes to one machine. Move cpu-1 until
    # exactly one of them is on MACHINE.
    while len(here := pods_on(cluster, "=worker")) != 1:
        with cluster.cordoned(MACHINE if here else API):
            cluster.kubectl("delete", "pod", "cpu-1", timeout=240)
            cluster.kubectl("wait", "--for=create", "pod/cpu-1", "--timeout=60s")
            cluster.kubectl("wait", "--for=condition=PodScheduled", "pod/cpu-1", "--timeout=60s")
    cluster.wait_for_login()
    (name,) = pods_on(cluster, "=worker")
    # Wait for the pod, because Slurm may show a moved node as idle before its new slurmd has
    # registered.
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=240s", timeout=300)
    node = Node(cluster, name)
    comes_back(node)
    return node


def comes_back(node: Node) -> None:
    """Wait until the node is in service with a healthy GPU.

    At first, the pod may be missing or terminating.
    """

    def is_back() -> bool:
        with contextlib.suppress(AssertionError):
            node.prints(WELL)
        return node.state == "idle"

    eventually(f"{node.name} is back", is_back, 240)


def test_frozen_kubelet_drains_the_node(alone: Node, folder: str) -> None:
    job = alone.cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={alone.name}")
    alone.cluster.wait_for_job(job, "RUNNING")
    # Wait longer than 50 s, after which Kubernetes reports the machine as not ready.
    with alone.cluster.frozen_kubelet(MACHINE):
        alone.is_drained_for("kubernetes:not-ready", 120)
        assert alone.cluster.job_state(job) == "RUNNING"
    eventually("the drain is lifted", lambda: alone.reason == "none", 120)
    assert alone.cluster.job_state(job) == "RUNNING"


@pytest.mark.soak
def test_jobs_of_a_stopped_machine_run_on_another_node(alone: Node, folder: str) -> None:
    script = "#!/bin/sh\nhostname >>where; [ $(wc -l <where) = 2 ] || sleep 600"
    job = alone.cluster.submit(folder, script, f"--nodelist={alone.name}", "--requeue")
    where = f"cat {folder}/where || true"
    eventually("the job has begun", lambda: alone.cluster.run(where) == alone.name)
    alone.cluster.computer(MACHINE).kill()
    try:
        eventually(
            "the job is pending again", lambda: alone.cluster.job_state(job) == "PENDING", 240
        )
        assert alone.reason.startswith("slurmstack:kubernetes:not-ready:")
        (other,) = {"cpu-0", "cpu-1"} - {alone.name}
        alone.cluster.run(f"scontrol update jobid={job} reqnodelist={other}")
    finally:
        alone.cluster.computer(MACHINE).start()
    alone.cluster.wait_for_job(job, "COMPLETED", 300)
    assert alone.cluster.run(where).split() == [alone.name, other]
    comes_back(alone)


def machine_uid(cluster: Cluster) -> str:
    return cluster.kubectl(
        "get", "node", MACHINE, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}"
    )


def forget_repairs(cluster: Cluster) -> None:
    """Empty the reconciler's memory, so that the next repair starts with its first step."""
    forget = ("--type=merge", '--patch={"data": {"memory": ""}}')
    cluster.kubectl("patch", "configmap", "reconciler-memory", *forget)


def test_lasting_fault_triggers_each_repair_step_in_order(alone: Node) -> None:
    cluster = alone.cluster
    pod, machine = cluster.pod_uid(alone.name), machine_uid(cluster)

    def booted() -> str:
        return str(cluster.computer(MACHINE).attrs["State"]["StartedAt"])

    before = booted()
    forget_repairs(cluster)
    # The fault lasts although the repair replaces the pod: a new pod lacks the tests' nvidia-smi,
    # so the check has no result, and the node stays drained.
    alone.prints(ROWS_PENDING)
    alone.is_drained_for("check:gpu-row-remap")
    eventually("the pod is restarted", lambda: cluster.pod_uid(alone.name) not in ("", pod), 120)
    eventually("the machine is rebooted", lambda: booted() != before, 120)
    eventually(
        "the Node is deleted for a replacement", lambda: machine_uid(cluster) != machine, 120
    )
    # Look for each step in the log, but allow more messages: the reconciler may give up on a slow
    # machine before this test sees that the machine is back.
    log = cluster.kubectl("logs", "deployment/reconciler")
    steps = [log.rfind(step) for step in STEPS]
    assert -1 not in steps
    assert steps == sorted(steps)

    # The test acts as the cloud provider, which creates another machine.
    cluster.computer(MACHINE).restart()
    eventually("there is a new machine", lambda: machine_uid(cluster) not in ("", machine), 120)
    comes_back(alone)


Requests = Callable[[], list[dict[str, str]]]


@pytest.fixture
def cloud(cluster: Cluster) -> Iterator[Requests]:
    """Yield a function that returns the requests of the command `reconciler.replace`.

    A server in the cluster receives these requests. It accepts only requests with its token.
    """
    token = secrets.token_hex(16)
    receive(cluster, CLOUD_NAMESPACE, CLOUD_PORT, cloud_program(token))
    entries = (f"--from-literal=token={token}", f"--from-literal=replace.py={REPLACE}")
    cluster.kubectl("create", "secret", "generic", "cloud", *entries)

    def edit(values: dict[str, Any]) -> None:
        values["reconciler"] |= {
            "ladders": {"gpu-row-remap": ["replace"]},
            "replace": ["python3", "/etc/slurmstack/replace/replace.py"],
            "replace_secret": "cloud",
            "replace_servers": [CLOUD],
        }

    def requests() -> list[dict[str, str]]:
        log = cluster.kubectl("logs", f"--namespace={CLOUD_NAMESPACE}", "pod/receiver")
        return [json.loads(line) for line in log.splitlines()]

    try:
        with cluster.edited(edit):
            cluster.deploy("up")
            yield requests
    finally:
        cluster.deploy("up")
        cluster.kubectl("delete", "secret", "cloud")
        cluster.kubectl("delete", "namespace", CLOUD_NAMESPACE)


def test_command_with_a_secret_requests_another_machine(cloud: Requests, alone: Node) -> None:
    cluster, machine = alone.cluster, machine_uid(alone.cluster)
    forget_repairs(cluster)
    alone.prints(ROWS_PENDING)
    alone.is_drained_for("check:gpu-row-remap")

    (request,) = eventually("the command requests another machine", cloud, 120)

    provider = cluster.kubectl("get", "node", MACHINE, "-o", "jsonpath={.spec.providerID}")
    assert request == {
        "MACHINE": MACHINE,
        "MACHINE_UID": machine,
        "PROVIDER_ID": provider,
        "SLURM_NODE": alone.name,
        "CAUSE": "gpu-row-remap",
    }
    # The test acts as the cloud, which replaces the machine.
    cluster.kubectl("delete", "node", MACHINE)
    cluster.computer(MACHINE).restart()
    eventually("there is a new machine", lambda: machine_uid(cluster) not in ("", machine), 120)
    comes_back(alone)
