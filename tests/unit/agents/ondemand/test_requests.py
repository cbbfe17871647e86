"""A pass of the agent needs the same number of requests for any number of nodes, and one more
request for each change. A pass with more than 500 pods needs one more."""

from pathlib import Path

import pytest

from tests.support.wakingnodes import WakingNodes

POD = {"metadata": {"annotations": {}}, "spec": {"containers": []}}
LISTS = ("nodes", "pods", "podtemplates")


@pytest.mark.parametrize("count", [1, 40, 600])
def test_pass_lists_pods_once_for_any_number_of_nodes(count: int, tmp_path: Path) -> None:
    now = 0.0
    nodes = WakingNodes(count, POD, boot=10, clock=lambda: now)
    agent = nodes.agent(tmp_path)

    made, carried = agent.look(now)
    assert (len(carried.done), carried.notes) == (count, ())
    assert {what: len(nodes.lists(what)) for what in LISTS} == dict.fromkeys(LISTS, 1)
    assert len(nodes.requests) == len(LISTS) + count

    # Now all pods exist. Kubernetes lists more than 500 pods in two pages.
    nodes.requests.clear()
    made, _ = agent.look(now)
    assert not made.actions
    assert {what: len(nodes.lists(what)) for what in LISTS} == dict.fromkeys(LISTS, 1)
    assert len(nodes.requests) == len(LISTS) + (count > 500)

    now = 10.0
    made, _ = agent.look(now)
    assert made.awake == count
