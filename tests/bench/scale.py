"""Ten thousand nodes: time to render Slurm's files, and response time of slurmctld.

This needs no Kubernetes: slurmctld runs in a container of the controller's image. The
nodes are only records without a slurmd.
"""

import contextlib
import copy
import io
import random
import secrets
import shlex
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.ondemand import __main__ as ondemand
from agents.ondemand.__main__ import Agent
from agents.ondemand.carry import Carried
from agents.ondemand.observed import Observed, Template
from agents.ondemand.plan import Plan, plan
from agents.reconciler.observed import Machine, Pod
from agents.reconciler.topology import Place, blocks, dumps, find_places, loads, tree
from components.settings import Settings, read_stack
from components.slurmconf import config_files, node_conf
from tests.bench.figures import Figures, say, seconds
from tests.support.containers import containers
from tests.support.graph import record, templates
from tests.support.ports import free_port
from tests.support.slurmctld import Slurmctld, start_controller
from tests.support.slurmnodes import NOW, node
from tests.support.stack import VALID, alone, config
from tests.support.wakingnodes import WakingNodes

STACK = "bench"
NODESETS, REPLICAS = 200, 50
WOKEN = 500
BOOT = 4.0
"""Seconds that a pod of a node on demand needs to start."""
KIB = 1024
TIMES = 5


def edited(kind: str, nodesets: int, replicas: int) -> Callable[[dict[str, Any]], None]:
    """Return an edit of settings: nodesets of this size, and a partition for every ten nodesets."""

    def edit(valid: dict[str, Any]) -> None:
        names = [f"set{ordinal:03}" for ordinal in range(nodesets)]
        model = {"kind": kind, "replicas": replicas, "cpus": 64, "memory": "256GiB"}
        valid["nodesets"] = [{"name": name, **copy.deepcopy(model)} for name in names]
        valid["partitions"] = [
            {"name": "main", "nodesets": names, "default": True},
            *(
                {"name": f"queue{first // 10}", "nodesets": names[first : first + 10]}
                for first in range(0, nodesets, 10)
            ),
        ]

    return edit


def measure(figures: Figures) -> None:
    files(figures)
    topologies(figures)
    on_demand(figures)
    slurmctld(figures)
    resources(figures)


# --- Files ---------------------------------------------------------------------------------------


def files(figures: Figures) -> None:
    """Measure the rendering of all of Slurm's files from a stack file."""
    for kind in ("dynamic", "static"):
        say(
            f"rendering Slurm's files for {NODESETS * REPLICAS} {kind} nodes in {NODESETS} nodesets"
        )
        with stack_folder(kind) as folder:
            took = statistics.median(
                seconds(lambda: config_files(read_stack(STACK, folder)))  # called at once
                for _ in range(TIMES)
            )
            rendered = config_files(read_stack(STACK, folder))
        size = sum(len(text.encode()) for text in rendered.values())
        figures.add(f"files of 10,000 {kind} nodes", took, at_most=1)
        figures.add(f"files of 10,000 {kind} nodes, in KiB", size / KIB, at_most=256)


@contextlib.contextmanager
def stack_folder(kind: str) -> Iterator[Path]:
    """Create a folder with the stack file."""
    values = copy.deepcopy(VALID)
    edited(kind, NODESETS, REPLICAS)(values)
    document = {"config": {f"slurmstack:{key}": value for key, value in values.items()}}
    with tempfile.TemporaryDirectory(prefix="slurmstack-bench-") as folder:
        (Path(folder) / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump(document))
        yield Path(folder)


# --- Topology ------------------------------------------------------------------------------------


def topologies(figures: Figures) -> None:
    """Measure how long the reconciler takes to derive the topology from the labels of machines.

    The time contains no requests to Kubernetes.
    """
    say(f"deriving the topology of {NODESETS * REPLICAS} nodes on as many machines")
    ways = {"tree": lambda: tree(placed()), "block": lambda: blocks(placed())}
    for kind, look in ways.items():
        median = statistics.median(seconds(look) for _ in range(TIMES))
        figures.add(f"topology/{kind} of 10,000 nodes", median, at_most=1)


def placed() -> dict[str, Place]:
    """Find the places of all nodes as the reconciler does in its second pass.

    The input of the second pass includes the places that the first pass found.
    """
    names = [f"set{i // REPLICAS:03}-{i % REPLICAS}" for i in range(NODESETS * REPLICAS)]
    chosen = random.Random(0).sample(range(len(names)), len(names))
    machines = {f"machine-{i}": machine(f"machine-{i}", i) for i in range(len(names))}
    pods = {name: pod(name, f"machine-{i}") for name, i in zip(names, chosen, strict=True)}
    levels = (("zone",), ("rack",), ("leaf",))
    last = loads(dumps(find_places(names, pods, machines, {}, levels), levels), levels)
    return find_places(names, pods, machines, last, levels)


def machine(name: str, number: int) -> Machine:
    """Return a machine. 16 machines share a leaf switch, 128 a rack, and 2560 a zone."""
    labels = {"zone": f"z{number // 2560}", "leaf": f"l{number // 16}", "rack": f"r{number // 128}"}
    return Machine(name=name, uid=name, version="1", created=0.0, labels=labels)


def pod(name: str, machine: str) -> Pod:
    return Pod(name, name, machine, is_worker=True, is_ready=True, started=0.0)


# --- Nodes on demand -----------------------------------------------------------------------------


def on_demand(figures: Figures) -> None:
    """Measure how fast the agent decides about nodes on demand that all wake at the same time.

    Also count the agent's requests until all nodes are awake. This process simulates slurmrestd
    and Kubernetes' API.
    """
    say(f"waking {WOKEN} nodes on demand at once")
    nodes = WakingNodes(WOKEN, pod_template(), boot=BOOT)
    records = {name: node(name, "ALLOCATED", "CLOUD", "POWERING_UP") for name in nodes.names}
    observed = Observed(records, {}, {"gpu": Template("gpu", "uid", {"spec": {}}, "digest")})
    wanted = nodes.wanted
    assert len(plan(observed, wanted, NOW).actions) == WOKEN
    median = statistics.median(seconds(lambda: plan(observed, wanted, NOW)) for _ in range(TIMES))
    figures.add(f"decisions for {WOKEN} nodes on demand", median, at_most=1)
    with tempfile.TemporaryDirectory(prefix="slurmstack-bench-") as folder:
        agent = nodes.agent(Path(folder))
        median = statistics.median(
            seconds(lambda: agent.look(time.time(), dry_run=True)) for _ in range(TIMES)
        )
        figures.add(f"decisions for {WOKEN} nodes on demand, with lists", median, at_most=1)
        nodes.requests.clear()
        wake(agent)
    figures.add(f"requests until {WOKEN} nodes are awake", len(nodes.requests))
    for what in ("pods", "podtemplates"):
        first, *_, last = times = nodes.lists(what)
        # Round the rate, because the agent's requests for lists do not come exactly every second.
        rate = round((len(times) - 1) / (last - first), 2)
        figures.add(
            f"requests per second for the list of {what}, until all nodes are awake",
            rate,
            at_most=1,
        )


def pod_template() -> dict[str, Any]:
    """Return the template of a real nodeset on demand."""
    gpu = {"name": "gpu", "replicas": WOKEN, "cpus": 64, "memory": "256GiB", "on_demand": {}}
    with pytest.MonkeyPatch.context() as patch:
        graph = record(patch, config(lambda valid: valid["nodesets"].append(gpu)))
    return templates(graph)["nodeset-gpu-template"]


def wake(agent: Agent) -> None:
    """Run the agent's command until all nodes are awake, while slurmctld calls it for each node."""
    look, before = agent.look, signal.getsignal(signal.SIGTERM)
    port = free_port()

    def calls() -> None:
        for _ in range(WOKEN):
            # The agent refuses connections while it starts or ends.
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            time.sleep(2 * BOOT / WOKEN)

    def until_awake(now: float) -> tuple[Plan, Carried]:
        made, carried = look(now)
        assert not carried.notes, carried.notes
        if made.awake == WOKEN:
            signal.raise_signal(signal.SIGTERM)
        return made, carried

    calling = threading.Thread(target=calls)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()):
        patch.setenv("PORT", str(port))
        patch.setattr(agent, "look", until_awake)
        calling.start()
        try:
            assert ondemand.main([], agent) == 0
        finally:
            signal.signal(signal.SIGTERM, before)
            calling.join()


# --- slurmctld -----------------------------------------------------------------------------------


def slurmctld(figures: Figures) -> None:
    """Measure slurmctld with static nodes, and with as many registered dynamic nodes."""
    with containers("slurmstack-bench") as start:
        controller = start_controller(start, secrets.token_hex(64))
        for kind in ("static", "dynamic"):
            say(f"starting slurmctld with {NODESETS * REPLICAS} {kind} nodes")
            stack = alone(edited(kind, NODESETS, REPLICAS))
            controller.install(stack)
            figures.add(f"slurmctld starts on 10,000 {kind} nodes", seconds(controller.start))
            if kind == "dynamic":
                create(controller, stack)
            assert node_count(controller) == NODESETS * REPLICAS
            took = [sinfo(controller) for _ in range(TIMES)]
            figures.add(f"sinfo of 10,000 {kind} nodes", statistics.median(took), at_most=1)
            if kind == "dynamic":
                controller.stop()
                figures.add(
                    "slurmctld starts again and recovers 10,000 dynamic nodes",
                    seconds(controller.start),
                )
                assert node_count(controller) == NODESETS * REPLICAS
            controller.stop()
        with_switches(controller, figures)


def with_switches(controller: Slurmctld, figures: Figures) -> None:
    """Measure slurmctld's start with a topology: slurmctld computes the distances of switches."""
    made = tree(placed())
    say(f"starting slurmctld with a topology: {made.summary}")
    edit = edited("static", NODESETS, REPLICAS)

    def labelled(values: dict[str, Any]) -> None:
        edit(values)
        values["slurm"] = {"topology": {"kind": "tree", "labels": ["zone", "rack", "leaf"]}}

    stack = alone(labelled)
    controller.install(stack, {**config_files(stack), "topology.conf": made.text})
    figures.add(f"slurmctld starts with {made.summary}", seconds(controller.start))
    controller.stop()


def create(controller: Slurmctld, stack: Settings) -> None:
    """Create the records of registered nodes, instead of starting 10,000 slurmd."""
    commands = "\n".join(
        shlex.join(("scontrol", "create", *words)) for words in descriptions(stack)
    )
    controller.run(f"set -e\n{commands}")


def descriptions(stack: Settings) -> Iterator[list[str]]:
    for nodeset in stack.nodesets:
        names = f"{nodeset.name}-[0-{nodeset.replicas - 1}]"
        # Use an address that no host has (RFC 5737): slurmctld would look up a name.
        yield [
            f"nodename={names}",
            *node_conf(nodeset).split(),
            "nodeaddr=192.0.2.1",
            "state=cloud",
        ]


def node_count(controller: Slurmctld) -> int:
    return int(controller.run("sinfo --noheader --all --Node --format=%N | sort -u | wc -l"))


def sinfo(controller: Slurmctld) -> float:
    """Return the seconds that `sinfo` takes inside the container."""
    took = controller.run("s=$(date +%s%N); sinfo >/dev/null; echo $(($(date +%s%N) - s))")
    return int(took) / 1e9


# --- The graph -----------------------------------------------------------------------------------


def resources(figures: Figures) -> None:
    """Count a stack's Pulumi resources for two sizes of its nodeset."""
    counts = []
    for replicas in (1, 1000):
        with pytest.MonkeyPatch.context() as patch:
            graph = record(patch, config(edited("dynamic", 1, replicas)))
        # Leave out the root stack resource, which the SDK registers only once in a process.
        counts.append(sum(found.type != "pulumi:pulumi:Stack" for found in graph.resources))
    few, many = counts
    figures.add("Pulumi resources with 1 node", few)
    figures.add("Pulumi resources with 1000 nodes", many, at_most=few, at_least=few)
