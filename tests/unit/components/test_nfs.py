"""The jail on an NFS server of the stack's own."""

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


def test_machines_mount_the_jail_from_the_service_by_its_address(graph: Graph) -> None:
    spec = graph.one("jail-volume").inputs["spec"]

    assert spec["nfs"] == {"server": CLUSTER_IP, "path": "/"}
    assert spec["accessModes"] == ["ReadWriteMany"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert "nfsvers=4.1" in spec["mountOptions"]
    claim = graph.one("jail-claim").inputs["spec"]
    assert claim["volumeName"] == f"slurm-{c.JAIL_CLAIM}"
    assert claim["storageClassName"] == "", "no class makes another one"


def test_the_volume_behind_it_is_as_large_as_the_jail_and_of_the_chosen_class(graph: Graph) -> None:
    spec = graph.one("jail-server-volume").inputs["spec"]

    assert spec["accessModes"] == ["ReadWriteOnce"]
    assert spec["resources"]["requests"]["storage"] == f"{2 * 1024**2}Mi"
    assert spec["storageClassName"] == "block"


@pytest.mark.parametrize(
    "name", ["jail-server-volume", "jail-server-service", "jail-volume", "jail-claim"]
)
def test_what_the_jail_would_be_lost_with_is_protected(graph: Graph, name: str) -> None:
    assert graph.one(name).protect


def test_nobody_mounts_the_jail_before_its_server_answers(graph: Graph) -> None:
    served = {GANESHA, "jail-server-service", "jail-server-volume", "jail-volume"}

    for name in ("jail-populate", "jail-homes", "login-sshd", "nodeset-cpu-slurmd"):
        assert served <= before(graph, name)
    assert "jail-origin" in before(graph, "jail-server-volume"), "which may refuse it"


def test_there_is_one_server_with_the_rights_of_a_server_and_none_of_a_machines(
    graph: Graph,
) -> None:
    workload = graph.one(GANESHA)
    assert workload.type == "kubernetes:apps/v1:StatefulSet", "never two on one volume"
    assert workload.inputs["spec"]["replicas"] == 1
    spec, security = pod(graph, GANESHA), container(graph, GANESHA)["securityContext"]
    assert "fsGroup" not in spec.get("securityContext", {}), "it would be given all users' files"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert security["privileged"] is False
    assert security["readOnlyRootFilesystem"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"SYS_ADMIN", "SYS_RESOURCE", "MKNOD"} & {*security["capabilities"]["add"]}


def test_users_are_kept_from_the_port_with_a_server_of_ours_and_without(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_the_server_refuses_whoever_is_none_of_the_machines(
    machines: list[str], clients: str
) -> None:
    conf = ganesha_conf(machines)

    assert re.findall(r"Clients = ([^;]*);", conf) == [clients]
    assert re.findall(r"Access_Type = (\w+);", conf) == ["None", "RW"]


def test_where_cilium_knows_the_machines_the_server_need_not() -> None:
    conf = ganesha_conf([])

    assert "CLIENT" not in conf
    assert re.findall(r"Access_Type = (\w+);", conf) == ["RW"]
