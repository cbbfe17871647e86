"""kubeadm creates three control planes, one after the other, and removes them."""

import pytest

from tests.container.metal.lab import Lab, is_clean
from tests.support.waiting import eventually


@pytest.mark.soak
def test_three_control_planes_form_a_cluster_and_are_removed_cleanly(lab: Lab) -> None:
    before, nodeset = lab.cluster, lab.nodeset
    names = [machine.name for machine in lab.machines]
    # There is no load balancer, so clients connect to the first control plane.
    lab.cluster = {
        **before,
        "control_planes": names,
        "endpoint": lab.head.address,
        "machines": [machine.settings() for machine in lab.machines],
    }
    lab.nodeset = {**nodeset, "replicas": 0}
    try:
        lab.up()
        eventually(
            "all control planes are ready", lambda: sorted(lab.nodes()) == names, timeout=120
        )
        etcd = lab.kubectl("get", "pods", "--namespace=kube-system", "--selector=component=etcd")
        assert {pod["spec"]["nodeName"] for pod in etcd["items"]} == set(names)
        for node in lab.nodes().values():
            assert "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"]

        lab.cluster["control_planes"] = [names[1], names[2], names[0]]
        lab.up()
        assert sorted(lab.nodes()) == names, "another order of control planes changes nothing"
    finally:
        lab.deploy("destroy", "--yes")
        lab.cluster, lab.nodeset = before, nodeset
    assert [machine.name for machine in lab.machines if not is_clean(machine)] == []
