"""Faults that last during a `with` block, and the alert that each of them fires.

The docstring of each fault describes the cluster during the block.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from tests.cluster.bridge.lab import NAMESPACE, Lab
from tests.support.waiting import becomes, eventually

_POLICY = "no-binding"
DEVICE = "example.org/device"


@contextlib.contextmanager
def no_bridge(lab: Lab) -> Iterator[None]:
    """The bridge does not run."""
    scale = ("scale", "deployment/bridge")
    lab.cluster.kubectl(*scale, "--replicas=0")
    try:
        yield
    finally:
        lab.cluster.kubectl(*scale, "--replicas=1")
        lab.cluster.wait_for_deployment("bridge")


@contextlib.contextmanager
def silent_machine(lab: Lab) -> Iterator[None]:
    """A machine does not answer, so a deleted pod on it cannot stop."""
    lab.create(lab.manifest("train"))
    lab.wait_for("train")
    with lab.cluster.frozen_kubelet(lab.machine("train")):
        lab.delete("train", wait=False)
        yield


@contextlib.contextmanager
def no_binding(lab: Lab) -> Iterator[None]:
    """An admission policy of the site refuses the binding of pods."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    names = {"kubernetes.io/metadata.name": NAMESPACE}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": names},
            "resourceRules": [{**rule, "resources": ["pods/binding"]}],
        },
        "validations": [{"expression": "false", "message": "no pod may start"}],
    }
    binding = {"policyName": _POLICY, "validationActions": ["Deny"]}
    api = "admissionregistration.k8s.io/v1"
    kinds = {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": binding}
    made = [
        {"apiVersion": api, "kind": kind, "metadata": {"name": _POLICY}, "spec": content}
        for kind, content in kinds.items()
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    lab.cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        lab.create(lab.manifest("train"))
        yield
    finally:
        lab.cluster.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=text)


@contextlib.contextmanager
def pods_of_others(lab: Lab) -> Iterator[None]:
    """A pod that Slurm does not know took the device of a machine, after Slurm had chosen this
    machine for another pod."""
    cluster = lab.cluster
    blocking = [lab.holds(node, 2) for node in ("cpu-0", "cpu-1")]
    bridge = lab.bridge()
    with lab.devices(DEVICE):
        lab.create(lab.manifest("train", devices={DEVICE: "1"}))
        job = lab.job("train")
        # The bridge may have seen the devices of one machine before those of the other.
        becomes("the excluded nodes", lambda: lab.shown(job, "ExcNodeList"), ["gpus-0"])
        lab.signal("STOP", bridge)
        try:
            other = lab.manifest("other", devices={DEVICE: "1"})
            other["spec"].update(schedulerName="", nodeName=lab.machine_of("cpu-0"))
            lab.create(other)
            lab.wait_for("other")
            cluster.run(f"scancel {blocking[0]}")
            cluster.wait_for_job(job, "RUNNING")
        finally:
            lab.signal("CONT", bridge)
        eventually("the pod has another job", lambda: lab.job("train") != job)
        yield
        assert lab.machine("train") == ""
        # Slurm now chooses the other machine.
        cluster.run(f"scancel {blocking[1]}")
        lab.wait_for("train")
        assert lab.machine("train") == lab.machine_of("cpu-1")


FAULTS: Mapping[str, Callable[[Lab], AbstractContextManager[None]]] = {
    "SlurmBridgeNotPlanning": no_bridge,
    "SlurmBridgePodsNotStopping": silent_machine,
    "SlurmBridgeJobsGivenBack": pods_of_others,
    "SlurmBridgeActionsFail": no_binding,
}
"""Faults by the alert that they fire."""
