"""The reconciler continues after a restart. It changes nothing while a service is unavailable."""

import json

import pytest

from components import conventions as c
from tests.cluster.health.faults import without
from tests.cluster.health.node import BROKEN, WELL, Node, scraped
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

POD = ("deploy/reconciler", "-c", "reconciler")
LOOK = ("python3", "-m", "agents.reconciler", "--once")


def look(cluster: Cluster, *options: str, where: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run the reconciler's program once over all nodes; return its exit code and output."""
    command = ("env", *where, *LOOK, *options)
    done = cluster.kubectl_result("exec", *POD, "--", *command, check=False, timeout=180)
    # Leave out the line that kubectl itself prints about the exit code.
    output = done.stdout + done.stderr
    lines = [line for line in output.splitlines() if not line.startswith("command terminated")]
    return done.returncode, "\n".join(lines)


def kill(cluster: Cluster) -> None:
    """Delete the pod without a grace period, as if its machine lost power."""
    selector = ("-l", "slurmstack.dev/component=reconciler")
    cluster.kubectl("delete", "pod", *selector, "--grace-period=0", "--force")


def test_reconciler_reports_that_all_nodes_are_in_service(node: Node) -> None:
    code, output = look(node.cluster, "--dry-run")
    assert (code, output) == (0, "2 of 2 nodes are in service")
    code, output = look(node.cluster, "--dry-run", "--json")
    assert code == 0
    assert json.loads(output)["in_service"] == 2


def test_deploy_reports_the_number_of_nodes_in_service(node: Node) -> None:
    assert "2 of 2 nodes are in service" in node.cluster.deploy("up").stdout


def test_exit_code_of_the_reconciler_reports_a_drained_node(node: Node) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    code, output = look(node.cluster, "--dry-run")
    assert code in (1, 3), output
    assert "1 of 2 nodes are in service" in output
    assert f"{node.name}: gpu-ecc" in output


def test_metrics_report_problems_and_repair_steps(node: Node) -> None:
    finding = 'slurmstack_findings{finding="gpu-ecc"}'
    lifted = f'slurmstack_steps_total{{node="{node.name}",step="lift"}}'

    def is_found() -> bool:
        metrics = scraped(node.cluster, c.RECONCILER)
        return (metrics.get(finding), metrics.get("slurmstack_nodes_in_service")) == (1, 1)

    def is_lifted() -> bool:
        metrics = scraped(node.cluster, c.RECONCILER)
        return metrics.get(lifted, 0) >= 1 and metrics.get("slurmstack_nodes_in_service") == 2

    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    eventually(f"metrics report the failed check of {node.name}", is_found)
    node.prints(WELL)
    node.is_back(120)
    eventually(f"metrics report that {node.name} is back", is_lifted)


def test_reconciler_continues_after_it_is_killed(node: Node) -> None:
    node.prints(BROKEN)
    kill(node.cluster)
    node.is_drained_for("check:gpu-ecc")
    kill(node.cluster)
    node.prints(WELL)
    kill(node.cluster)
    node.is_back(120)


@pytest.mark.parametrize("away", ["rest", pytest.param("controller", marks=pytest.mark.soak)])
def test_reconciler_does_nothing_when_slurm_does_not_answer(node: Node, away: str) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    with without(node.cluster, away):
        node.prints(WELL)
        code, output = look(node.cluster)
        assert code == 2, output
        assert len(output.splitlines()) == 1, output
        if away == "rest":
            node.looks()
            assert node.reason.startswith("slurmstack:check:gpu-ecc:")
    node.is_back(120)


def test_reconciler_does_nothing_when_kubernetes_does_not_answer(node: Node) -> None:
    # An address that no host has (RFC 5737).
    code, output = look(node.cluster, where=("KUBERNETES_SERVICE_HOST=192.0.2.1",))
    assert code == 2, output
    assert len(output.splitlines()) == 1, output
