"""Pods run on machines on which their volumes can be mounted."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from local.addons import PROVISIONER
from tests.cluster.bridge.lab import Lab

Object = dict[str, Any]
LATE = "late"
"""StorageClass whose volumes are created when their pods have a machine."""


def claim(name: str, storage_class: str, **more: Any) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Mi"}},
        **more,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def of_machine(name: str, machine: str) -> Object:
    """Return a volume that only one machine can mount."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "hostPath": {"path": f"/srv/{name}", "type": "DirectoryOrCreate"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


@contextlib.contextmanager
def existing(lab: Lab, *objects: Object) -> Iterator[None]:
    """The objects exist during the `with` block."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    lab.kubectl("create", "-f", "-", stdin=text)
    try:
        yield
    finally:
        lab.delete("train")
        lab.kubectl("delete", "-f", "-", stdin=text)


def mounting(lab: Lab, name: str) -> Object:
    given = lab.manifest("train", "touch /data/here && sleep 3600")
    given["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    given["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    given["spec"]["containers"][0]["securityContext"] = {"runAsUser": 0}
    return given


@pytest.mark.parametrize("node", ["cpu-0", "cpu-1"])
def test_pod_runs_on_the_machine_of_its_volume(lab: Lab, node: str) -> None:
    machine, name = lab.machine_of(node), f"disk-of-{node}"
    volume, disk = of_machine(name, machine), claim(name, "", volumeName=name)
    with existing(lab, volume, disk):
        lab.create(mounting(lab, name))
        lab.wait_for("train")
        assert lab.machine("train") == machine


def test_volume_is_created_when_slurm_has_chosen_the_machine(lab: Lab) -> None:
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": LATE},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    with existing(lab, storage, claim("late", LATE)):
        lab.create(mounting(lab, "late"))
        lab.wait_for("train")


def test_missing_claim_is_told(lab: Lab) -> None:
    lab.create(mounting(lab, "nowhere"))
    lab.wait_for_message("train", "PersistentVolumeClaim 'nowhere': does not exist; create it")
