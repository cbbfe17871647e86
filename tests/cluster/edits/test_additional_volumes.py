"""Additional volumes from the settings appear in the jail."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.nodesets import edit_nodeset
from tests.support.waiting import eventually

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
"""
DATA = {"name": "data", "path": "/data", "claim": "data"}
SCRATCH = {"name": "scratch", "path": "/scratch", "empty": {"size": "1GiB"}, "login": False}


@pytest.fixture(scope="module", autouse=True)
def _volumes(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Deploy the stack with two additional volumes; restore it afterwards."""
    file = tmp_path_factory.mktemp("claim") / "claim.yaml"
    file.write_text(CLAIM)
    cluster.kubectl("apply", "-f", str(file))

    def add(values: dict[str, Any]) -> None:
        values["jail"]["volumes"] = [DATA, SCRATCH]

    try:
        with cluster.edited(add):
            cluster.deploy("up")
            cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
            cluster.in_pod("login-0", "sshd", "chmod", "1777", "/mnt/jail/data")
            yield
    finally:
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
        cluster.kubectl("delete", "pvc", "data", "--wait=false")


def test_additional_volumes_reach_every_node_and_survive_a_refresh(cluster: Cluster) -> None:
    cluster.run("echo from login >/data/note")

    assert cluster.run("srun --nodelist=cpu-1 cat /data/note") == "from login"
    cluster.run("srun --nodelist=cpu-0 sh -c 'echo mine >/scratch/note'")
    other = cluster.ssh("srun --nodelist=cpu-1 cat /scratch/note", check=False)
    assert other.returncode != 0, "each node has its own volume"
    assert cluster.run("ls -A /scratch") == "", "login nodes do not have the volume"

    with cluster.edited(lambda values: values["jail"].update(refresh=1)):
        cluster.deploy("up")
    assert cluster.run("cat /data/note") == "from login"
    assert cluster.run("srun --nodelist=cpu-0 cat /scratch/note") == "mine"


def test_jobs_with_an_overlay_share_an_additional_volume(cluster: Cluster) -> None:
    with cluster.edited(edit_nodeset("cpu", isolation={"overlay": True})):
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
        # Wait for the new options of the SPANK plugin. They are in a ConfigMap, and the kubelet
        # updates a pod's ConfigMaps about once a minute.
        write = "findmnt -no FSTYPE / | grep -qx overlay && touch /data/lasting"
        eventually(
            "a job writes to the volume",
            lambda: cluster.ssh(f"srun sh -c '{write}'", check=False).returncode == 0,
            180,
        )
        assert set(cluster.run("ls /data").split()) <= {"note", "lasting"}
        assert "lasting" in cluster.run("ls /data").split()
