"""Labels of machines define the topology of the network, and follow their changes."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agents.hostlist import expand
from components import conventions as c
from tests.support.cluster import Cluster
from tests.support.nodesets import SMALL, machine_of
from tests.support.waiting import becomes, eventually

ZONE, RACK = "topology.kubernetes.io/zone", "example.org/rack"
NODES = tuple(f"net-{ordinal}" for ordinal in range(4))
DELIVERY = 240
"""Seconds until a changed label reaches slurmctld. The reconciler collects changes for up to a
minute, and the kubelet delivers the new file within about a minute and a half."""


def by_labels(values: dict[str, Any]) -> None:
    values["nodesets"] = [{**SMALL, "name": "net", "kind": "static", "replicas": len(NODES)}]
    values["slurm"] = {"topology": {"kind": "tree", "labels": ["zone", RACK]}}
    values["reconciler"] = {"interval": 5, "rollout": 60}


def label(cluster: Cluster, machine: str, rack: str) -> None:
    labels = (f"{ZONE}=zone-1", f"{RACK}={rack}")
    cluster.kubectl("label", "node", machine, "--overwrite", *labels)


def machines(cluster: Cluster) -> list[str]:
    return sorted(machine["metadata"]["name"] for machine in cluster.objects("nodes"))


@pytest.fixture(scope="module", autouse=True)
def _by_labels(cluster: Cluster) -> Iterator[None]:
    for ordinal, machine in enumerate(machines(cluster)):
        label(cluster, machine, f"rack-{ordinal}")
    try:
        with cluster.edited(by_labels):
            cluster.deploy("up")
            cluster.wait_for_nodes(*NODES, timeout=180)
            yield
    finally:
        cluster.run("scancel --me")
        for machine in machines(cluster):
            cluster.kubectl("label", "node", machine, f"{ZONE}-", f"{RACK}-")
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def racks(cluster: Cluster) -> dict[str, str]:
    """Return the rack of each node, from the labels of its machine."""
    labels = {
        one["metadata"]["name"]: one["metadata"]["labels"] for one in cluster.objects("nodes")
    }
    return {
        pod["metadata"]["name"]: labels[pod["spec"]["nodeName"]][RACK]
        for pod in cluster.pods("worker")
    }


def shown(cluster: Cluster) -> dict[str, str]:
    """Return the leaf switch of each node, as slurmctld shows it."""
    # Accept an error, because slurmctld may be starting with a new topology.
    text = cluster.ssh("scontrol show topology", check=False).stdout
    leaves = re.findall(r"^SwitchName=(\S+) Level=0 .*Nodes=(\S+)", text, re.MULTILINE)
    return {node: switch for switch, nodes in leaves for node in expand(nodes)}


def addresses(cluster: Cluster, *options: str) -> set[str]:
    """Run a job, and return the topology addresses of its nodes; an empty set if the job fails."""
    ask = f"srun {' '.join(options)} printenv SLURM_TOPOLOGY_ADDR"
    return set(cluster.ssh(ask, check=False, timeout=120).stdout.split())


def follows_labels(cluster: Cluster) -> None:
    becomes("the leaf switch of each node", lambda: shown(cluster), racks(cluster), DELIVERY)


def test_topology_and_addresses_of_jobs_match_the_labels(cluster: Cluster) -> None:
    follows_labels(cluster)

    for node, rack in racks(cluster).items():
        found = partial(addresses, cluster, f"--nodelist={node}")
        becomes(f"the address of jobs on {node}", found, {f"zone-1.{rack}.{node}"})


def test_job_of_two_nodes_stays_below_one_switch(cluster: Cluster) -> None:
    follows_labels(cluster)
    # Four nodes on two machines: at least one switch has two nodes.
    for _ in range(5):
        found = addresses(cluster, "--nodes=2", "--ntasks-per-node=1")
        assert len(found) == 2
        assert len({address.rpartition(".")[0] for address in found}) == 1


def test_changed_label_takes_effect_while_jobs_run(cluster: Cluster, folder: str) -> None:
    follows_labels(cluster)
    machine = machine_of(cluster, NODES[0])
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={NODES[0]}")
    cluster.wait_for_job(job, "RUNNING")
    controller = cluster.controller()
    before = (cluster.pod_uid(controller), cluster.restarts(controller))

    label(cluster, machine, "rack-9")

    follows_labels(cluster)
    assert cluster.job_state(job) == "RUNNING"
    assert (cluster.pod_uid(controller), cluster.restarts(controller)) == before
    eventually(
        "a new step has the new address",
        lambda: addresses(cluster, f"--jobid={job}", "--overlap") == {f"zone-1.rack-9.{NODES[0]}"},
    )


def test_killed_controller_reads_the_topology_again(cluster: Cluster) -> None:
    follows_labels(cluster)

    cluster.kubectl("delete", "pod", cluster.controller(), timeout=120)

    follows_labels(cluster)


def test_node_on_a_machine_without_labels_is_unplaced(cluster: Cluster) -> None:
    machine, rack = machine_of(cluster, NODES[0]), racks(cluster)[NODES[0]]
    here = {node for node in NODES if machine_of(cluster, node) == machine}
    try:
        cluster.kubectl("label", "node", machine, f"{ZONE}-", f"{RACK}-")
        eventually(
            f"{here} are unplaced",
            lambda: {node for node, leaf in shown(cluster).items() if leaf == "unplaced"} == here,
            DELIVERY,
        )
        # A job can use placed and unplaced nodes together.
        assert len(addresses(cluster, f"--nodes={len(NODES)}", "--ntasks-per-node=1")) == len(NODES)
    finally:
        label(cluster, machine, rack)


def test_reconciler_reports_the_topology(cluster: Cluster) -> None:
    follows_labels(cluster)

    log = cluster.kubectl("logs", f"deployment/{c.RECONCILER}")

    assert "done: write topology.conf: " in log
