"""The reconciler goes on where it was, and does nothing where it cannot ask."""

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
    """Exit code and output of one look."""
    command = ("env", *where, *LOOK, *options)
    done = cluster.kubectl_said("exec", *POD, "--", *command, check=False, timeout=180)
    # Of the exit code, kubectl tells as well.
    told = done.stdout + done.stderr
    lines = [line for line in told.splitlines() if not line.startswith("command terminated")]
    return done.returncode, "\n".join(lines)


def kill(cluster: Cluster) -> None:
    """As a machine that is switched off would."""
    of_it = ("-l", "slurmstack.dev/component=reconciler")
    cluster.kubectl("delete", "pod", *of_it, "--grace-period=0", "--force")


def test_where_all_is_well_it_says_so(node: Node) -> None:
    code, said = look(node.cluster, "--dry-run")
    assert (code, said) == (0, "2 of 2 nodes are in service")
    code, said = look(node.cluster, "--dry-run", "--json")
    assert code == 0
    assert json.loads(said)["in_service"] == 2


def test_the_deploy_reports(node: Node) -> None:
    assert "2 of 2 nodes are in service" in node.cluster.deploy("up").stdout


def test_what_is_out_is_in_the_exit_code(node: Node) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    code, said = look(node.cluster, "--dry-run")
    assert code in (1, 3), said
    assert "1 of 2 nodes are in service" in said
    assert f"{node.name}: gpu-ecc" in said


def test_what_it_finds_and_does_is_in_its_metrics(node: Node) -> None:
    finding = 'slurmstack_findings{finding="gpu-ecc"}'
    lifted = f'slurmstack_steps_total{{node="{node.name}",step="lift"}}'

    def is_found() -> bool:
        shown = scraped(node.cluster, c.RECONCILER)
        return (shown.get(finding), shown.get("slurmstack_nodes_in_service")) == (1, 1)

    def is_lifted() -> bool:
        shown = scraped(node.cluster, c.RECONCILER)
        return shown.get(lifted, 0) >= 1 and shown.get("slurmstack_nodes_in_service") == 2

    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    eventually(f"{node.name} shows", is_found)
    node.prints(WELL)
    node.is_back(120)
    eventually(f"that {node.name} is back shows", is_lifted)


def test_killed_in_between_it_goes_on(node: Node) -> None:
    node.prints(BROKEN)
    kill(node.cluster)
    node.is_drained_for("check:gpu-ecc")
    kill(node.cluster)
    node.prints(WELL)
    kill(node.cluster)
    node.is_back(120)


@pytest.mark.parametrize("away", ["rest", pytest.param("controller", marks=pytest.mark.soak)])
def test_where_slurm_does_not_answer_it_does_nothing(node: Node, away: str) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    with without(node.cluster, away):
        node.prints(WELL)
        code, said = look(node.cluster)
        assert code == 2, said
        assert len(said.splitlines()) == 1, said
        if away == "rest":
            node.looks()
            assert node.reason.startswith("slurmstack:check:gpu-ecc:")
    node.is_back(120)


def test_where_kubernetes_does_not_answer_it_does_nothing(node: Node) -> None:
    # An address that no host has (RFC 5737).
    code, said = look(node.cluster, where=("KUBERNETES_SERVICE_HOST=192.0.2.1",))
    assert code == 2, said
    assert len(said.splitlines()) == 1, said
