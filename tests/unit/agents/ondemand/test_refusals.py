"""Pods that Kubernetes refuses, for a quota or because the API server has just started."""

from pathlib import Path

import pytest

from agents.ondemand.__main__ import Agent
from agents.ondemand.actions import Create, GiveUp
from agents.ondemand.carry import Carried, Carrier
from agents.ondemand.observed import Template
from tests.unit.agents.ondemand.world import NODE, FakeApi, FakeSlurm, World, agent_of

POLICY = "ValidatingAdmissionPolicy 'slurm-ondemand-templates' denied request: "


@pytest.fixture
def world(world: World) -> World:
    world.pass_time(25)
    return world


@pytest.mark.parametrize(
    "refusal",
    [
        'pods "gpu-0" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=9',
        f"{POLICY}volumes must be the same as in the PodTemplate of the nodeset",
    ],
)
def test_permanent_refusal_of_a_pod_ends_the_start(
    agent: Agent, world: World, refusal: str
) -> None:
    world.refusal = refusal
    _, carried = agent.look(world.now)

    assert world.boxes[NODE].reason.startswith("slurmstack:start:quota: ")
    (given_up,) = carried.done
    assert isinstance(given_up, GiveUp)


@pytest.mark.parametrize(
    "refusal",
    [
        f"{POLICY}failed to configure binding: no params found for policy binding",
        'pods "gpu-0" is forbidden: not yet ready to handle request',
        'User "ondemand" cannot create resource "pods" in API group "" in the namespace "slurm"',
    ],
)
def test_refusal_during_a_start_of_the_api_server_is_temporary(
    agent: Agent, world: World, refusal: str
) -> None:
    world.refusal = refusal
    plan, carried = agent.look(world.now)
    action = f"create the pod of node {NODE}"
    note = f"cannot carry out '{action}': Kubernetes: {refusal}; the agent tries again"
    assert carried.notes == (note,)
    assert carried.done == ()
    assert not plan.is_settled
    assert world.boxes[NODE].reason == ""

    world.refusal = ""
    agent.look(world.now)
    assert NODE in world.pods


def test_start_over_the_cost_ceiling_leaves_no_failure_record(world: World, tmp_path: Path) -> None:
    agent_of(world, tmp_path, {"gpu": 1}, ceiling=0.5).look(world.now)

    assert world.boxes[NODE].reason.startswith("slurmstack:start:cost: ")
    assert world.boxes[NODE].comment == ""


def test_foreign_pod_with_the_name_of_a_node_ends_the_start(agent: Agent, world: World) -> None:
    world.foreign_pods = {NODE}
    agent.look(world.now)

    assert world.boxes[NODE].reason == (
        "slurmstack:start:broken: another pod has the name gpu-0; delete that pod"
    )


def test_own_pod_that_already_exists_does_not_end_the_start(agent: Agent, world: World) -> None:
    agent.look(world.now)
    create = Create(NODE, "gpu")
    templates = {"gpu": Template("gpu", "uid", {"spec": {"image": "good"}}, "new")}
    carried = Carrier(FakeSlurm(world), FakeApi(world), "slurm").carry([create], templates)

    assert carried == Carried((), ())
    assert world.boxes[NODE].reason == ""
