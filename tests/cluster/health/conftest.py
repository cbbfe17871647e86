"""A stack of its own, whose nodes tests may break."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from components import conventions as c
from tests.cluster.health.node import WELL, Node
from tests.cluster.health.receiving import (
    COLLECTOR,
    COLLECTOR_NAMESPACE,
    COLLECTOR_PROGRAM,
    receive,
)
from tests.support.cluster import Cluster, Deployed, write_test_stack
from tests.support.prometheus import HOOK

INTERVAL = 10
"""Seconds between two looks of a node."""


def watchful(values: dict[str, Any]) -> None:
    values["health"] = {"interval": INTERVAL, "node_states": ["any"]}
    # Checks of GPUs ask for a nvidia-smi, which the tests bring.
    values["nodesets"][0]["checks"] = {
        "disk": {"paths": ["/dev/shm"], "max_percent": 30},
        "gpu-ecc": {},
        "gpu-row-remap": {},
    }
    # No memory is that fast.
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


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """A stack of its own, which looks at its nodes often, and whose machines may be broken."""
    with deployed(write_test_stack("health", edit=watchful)) as stack:
        # One that a run left behind goes first.
        stack.kubectl("delete", "namespace", COLLECTOR_NAMESPACE, "--ignore-not-found")
        receive(stack, COLLECTOR_NAMESPACE, 4318, COLLECTOR_PROGRAM)
        yield stack


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    """A node in service, whose GPUs are well."""
    one = Node(cluster, "cpu-1")
    one.prints(WELL)
    one.is_back(120)
    yield one
    one.prints(WELL)
    one.is_back(120)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Function) -> Generator[None, None, None]:
    yield from explained(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, None, None]:
    yield from explained(item)


def explained(item: pytest.Function) -> Generator[None, None, None]:
    """Show with a failure how nodes are, and what the reconciler has said last."""
    try:
        yield
    except AssertionError as error:
        cluster = item.funcargs.get("cluster")
        # It is missing if the stack itself could not be made.
        if isinstance(cluster, Cluster):
            error.add_note(how_it_stands(cluster))
        raise


def how_it_stands(cluster: Cluster) -> str:
    asked = (("get", "nodes"), ("logs", f"deploy/{c.RECONCILER}", "--tail=20"))
    told = (cluster.kubectl(*command, check=False) for command in asked)
    return "\n".join((*told, cluster.state()))
