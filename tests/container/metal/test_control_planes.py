"""Three control planes by kubeadm: one after the other, and away again."""

import pytest

from tests.container.metal.lab import Lab, is_clean
from tests.support.waiting import eventually


@pytest.mark.soak
def test_three_control_planes_are_one_cluster_and_leave_their_machines_clean(lab: Lab) -> None:
    before, nodeset = lab.cluster, lab.nodeset
    names = [machine.name for machine in lab.machines]
    # No balancer is here: who asks goes to the first.
    lab.cluster = {
        **before,
        "control_planes": names,
        "endpoint": lab.head.address,
        "machines": [machine.settings() for machine in lab.machines],
    }
    lab.nodeset = {**nodeset, "replicas": 0}
    try:
        lab.up()
        eventually("all are ready", lambda: sorted(lab.nodes()) == names, timeout=120)
        etcd = lab.kubectl("get", "pods", "--namespace=kube-system", "--selector=component=etcd")
        assert {pod["spec"]["nodeName"] for pod in etcd["items"]} == set(names)
        for node in lab.nodes().values():
            assert "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"]

        lab.cluster["control_planes"] = [names[1], names[2], names[0]]
        lab.up()
        assert sorted(lab.nodes()) == names, "another order is the same cluster"
    finally:
        lab.deploy("destroy", "--yes")
        lab.cluster, lab.nodeset = before, nodeset
    assert [machine.name for machine in lab.machines if not is_clean(machine)] == []
