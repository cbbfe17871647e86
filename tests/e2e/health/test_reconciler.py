"""The reconciler goes on where it was, and does nothing where it cannot ask."""

import contextlib
import json
import subprocess
from collections.abc import Iterator

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.health.conftest import Node

POD = ("deploy/reconciler", "-c", "reconciler")
LOOK = ("python3", "-m", "agents.reconciler", "--once")


def look(cluster: Cluster, *options: str, where: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and output of one look."""
    kubectl = [".local/bin/kubectl", f"--kubeconfig={cluster.directory}/kubeconfig", "-n", "slurm"]
    done = subprocess.run(
        [*kubectl, "exec", *POD, "--", "env", *where, *LOOK, *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def without(cluster: Cluster, deployment: str) -> Iterator[None]:
    scale = ("scale", f"deployment/{deployment}")
    before = cluster.kubectl("get", f"deployment/{deployment}", "-o", "jsonpath={.spec.replicas}")
    cluster.kubectl(*scale, "--replicas=0")
    eventually(f"no {deployment} is left", lambda: not cluster.pods(deployment), 120)
    try:
        yield
    finally:
        cluster.kubectl(*scale, f"--replicas={before}")
        cluster.kubectl("rollout", "status", f"deployment/{deployment}", "--timeout=120s")


def test_where_all_is_well_it_says_so(node: Node) -> None:
    code, said = look(node.cluster, "--dry-run")
    assert (code, said.strip()) == (0, "2 of 2 nodes are in service")
    code, said = look(node.cluster, "--dry-run", "--json")
    assert code == 0
    assert json.loads(said)["in_service"] == 2


def test_the_deploy_reports(node: Node) -> None:
    assert "2 of 2 nodes are in service" in node.cluster.deploy("up").stdout


def test_killed_in_between_it_goes_on(node: Node) -> None:
    node.prints("a100-sram-uncorrectable")
    node.is_drained_for("check:gpu-ecc")
    kill = ("delete", "pod", "-l", "slurmstack.dev/component=reconciler", "--grace-period=0")
    node.cluster.kubectl(*kill, "--force")
    node.prints("h100-535.183.01")
    node.cluster.kubectl(*kill, "--force")
    node.is_back(120)


def test_without_slurmrestd_it_does_nothing(node: Node) -> None:
    node.prints("a100-sram-uncorrectable")
    node.is_drained_for("check:gpu-ecc")
    with without(node.cluster, "rest"):
        node.prints("h100-535.183.01")
        code, said = look(node.cluster)
        assert code == 2, said
        assert len(said.strip().splitlines()) == 1
        node.looks()
        assert node.reason.startswith("slurmstack:check:gpu-ecc:")
    node.is_back(120)


def test_without_kubernetes_it_does_nothing(node: Node) -> None:
    # An address that no host has (RFC 5737).
    code, said = look(node.cluster, where=("KUBERNETES_SERVICE_HOST=192.0.2.1",))
    assert code == 2, said
    assert len(said.strip().splitlines()) == 1
