"""A separate stack, so that tests may break its nodes."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.health.node import WELL, Node
from tests.cluster.health.receiving import (
    COLLECTOR,
    COLLECTOR_NAMESPACE,
    COLLECTOR_PORT,
    COLLECTOR_PROGRAM,
    receive,
)
from tests.support.cluster import Cluster, Deployed, write_test_stack
from tests.support.prometheus import HOOK

INTERVAL = 10
"""Seconds between two runs of a node's checks."""


def watchful(values: dict[str, Any]) -> None:
    values["health"] = {"interval": INTERVAL, "node_states": ["any"]}
    # GPU checks need nvidia-smi; the tests install a script under this name.
    values["nodesets"][0]["checks"] = {
        "disk": {"paths": ["/dev/shm"], "max_percent": 30},
        "gpu-ecc": {},
        "gpu-row-remap": {},
    }
    # No memory reaches this bandwidth, so the check fails.
    values["long_checks"] = {
        "checks": [{"name": "network"}, {"name": "cpu-memory", "threshold": 1_000_000_000}]
    }
    values["monitoring"]["bundled"]["webhook"] = HOOK
    values["monitoring"]["logs"] = {"endpoint": COLLECTOR}
    values["reconciler"] = {
        "interval": 5,
        "share": 1,
        "rollout": 60,
        # Repairs would undo the tests' changes to pods, so the reconciler repairs only nodes with
        # the cause `gpu-row-remap`.
        "ladder": ["recheck"],
        "ladders": {"gpu-row-remap": ["restart", "reboot", "replace"]},
        "back_off": 10,
        "replace_age": 0,
    }


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """A separate stack with frequent checks. Tests may break its machines."""
    with deployed(write_test_stack("health", edit=watchful)) as stack:
        # Remove the namespace that an interrupted run left behind.
        stack.kubectl("delete", "namespace", COLLECTOR_NAMESPACE, "--ignore-not-found")
        receive(stack, COLLECTOR_NAMESPACE, COLLECTOR_PORT, COLLECTOR_PROGRAM)
        yield stack


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    """A node that is in service, with healthy GPUs."""
    one = Node(cluster, "cpu-1")
    one.prints(WELL)
    one.is_back(120)
    yield one
    one.prints(WELL)
    one.is_back(120)
