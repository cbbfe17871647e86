"""Tests of a jail on the NFS server of the stack."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from components import conventions as c
from components.storage.nfs import ganesha_conf
from tests.support.graph import CLUSTER_IP, Graph, before, container, pod, record
from tests.support.stack import config

GANESHA = "jail-server-ganesha"
SERVER = {"storage_class": "block", "machines": ["10.0.0.0/16", "2001:db8::/64"]}


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    def edit(values: dict[str, Any]) -> None:
        values["jail"] = {"size": "2TiB", "server": SERVER}
        values["protect_data"] = True

    with pytest.MonkeyPatch.context() as monkeypatch:
        yield record(monkeypatch, config(edit))


def test_machines_mount_the_jail_from_the_address_of_the_service(graph: Graph) -> None:
    spec = graph.one("jail-volume").inputs["spec"]

    assert spec["nfs"] == {"server": CLUSTER_IP, "path": "/"}
    assert spec["accessModes"] == ["ReadWriteMany"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert "nfsvers=4.1" in spec["mountOptions"]
    claim = graph.one("jail-claim").inputs["spec"]
    assert claim["volumeName"] == f"slurm-{c.JAIL_CLAIM}"
    assert claim["storageClassName"] == "", "no storage class may provision another volume"


def test_nfs_volume_has_the_size_and_class_of_the_jail(graph: Graph) -> None:
    spec = graph.one("jail-server-volume").inputs["spec"]

    assert spec["accessModes"] == ["ReadWriteOnce"]
    assert spec["resources"]["requests"]["storage"] == f"{2 * 1024**2}Mi"
    assert spec["storageClassName"] == "block"


@pytest.mark.parametrize(
    "name", ["jail-server-volume", "jail-server-service", "jail-volume", "jail-claim"]
)
def test_resources_that_contain_the_jail_are_protected(graph: Graph, name: str) -> None:
    assert graph.one(name).protect


def test_pods_are_created_after_the_nfs_server_is_ready(graph: Graph) -> None:
    served = {GANESHA, "jail-server-service", "jail-server-volume", "jail-volume"}

    for name in ("jail-populate", "jail-homes", "login-sshd", "nodeset-cpu-slurmd"):
        assert served <= before(graph, name)
    assert "jail-origin" in before(graph, "jail-server-volume"), (
        "the check of the jail's origin must run first, because it may refuse the NFS server"
    )


def test_nfs_server_runs_once_and_has_no_rights_on_machines(
    graph: Graph,
) -> None:
    workload = graph.one(GANESHA)
    assert workload.type == "kubernetes:apps/v1:StatefulSet", (
        "two servers must never share a volume"
    )
    assert workload.inputs["spec"]["replicas"] == 1
    spec, security = pod(graph, GANESHA), container(graph, GANESHA)["securityContext"]
    assert "fsGroup" not in spec.get("securityContext", {}), (
        "kubelet would change the group of all users' files"
    )
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert security["privileged"] is False
    assert security["readOnlyRootFilesystem"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"SYS_ADMIN", "SYS_RESOURCE", "MKNOD"} & {*security["capabilities"]["add"]}


def test_guard_always_refuses_the_nfs_port(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (graph, record(monkeypatch)):
        for name in ("login-sshd", "nodeset-cpu-slurmd"):
            (guard,) = (one for one in pod(found, name)["initContainers"] if one["name"] == "guard")
            (ports,) = (one["value"] for one in guard["env"] if one["name"] == "REFUSED_PORTS")
            assert str(c.NFS_PORT) in ports.split()


@pytest.mark.parametrize(
    ("machines", "clients"),
    [
        (["10.0.0.0/16", "192.0.2.1/32"], "10.0.0.0/16, 192.0.2.1"),
        (["2001:db8::/64", "2001:db8::1/128"], "2001:db8::/64, 2001:db8::1"),
    ],
)
def test_nfs_server_accepts_only_machines(machines: list[str], clients: str) -> None:
    conf = ganesha_conf(machines)

    assert re.findall(r"Clients = ([^;]*);", conf) == [clients]
    assert re.findall(r"Access_Type = (\w+);", conf) == ["None", "RW"]


def test_nfs_server_accepts_all_clients_if_cilium_filters_them() -> None:
    conf = ganesha_conf([])

    assert "CLIENT" not in conf
    assert re.findall(r"Access_Type = (\w+);", conf) == ["RW"]
