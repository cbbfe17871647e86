"""The jail's storage, additional volumes in the jail, and refused settings of both."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import error_line
from tests.support.cluster import Cluster
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


@pytest.fixture
def claim(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    file = tmp_path / "claim.yaml"
    file.write_text(CLAIM)
    cluster.kubectl("apply", "-f", str(file))
    yield
    cluster.kubectl("delete", "pvc", "data", "--wait=false")


@contextlib.contextmanager
def jail(cluster: Cluster, **fields: Any) -> Iterator[None]:
    """Deploy the stack with an edited jail; restore it afterwards."""
    try:
        with cluster.edited(lambda values: values["jail"].update(fields)):
            cluster.deploy("up")
            cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
            yield
    finally:
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def in_login(cluster: Cluster, script: str) -> str:
    return cluster.in_pod("login-0", "sshd", "sh", "-c", script)


@pytest.mark.usefixtures("claim")
def test_additional_volumes_reach_every_node_and_survive_a_refresh(
    cluster: Cluster,
) -> None:
    with jail(cluster, volumes=[DATA, SCRATCH]):
        in_login(cluster, "chmod 1777 /mnt/jail/data")
        cluster.run("echo from login >/data/note")

        assert cluster.run("srun --nodelist=cpu-1 cat /data/note") == "from login"
        cluster.run("srun --nodelist=cpu-0 sh -c 'echo mine >/scratch/note'")
        other = cluster.ssh("srun --nodelist=cpu-1 cat /scratch/note", check=False)
        assert other.returncode != 0, "each node has its own volume"
        assert cluster.run("ls -A /scratch") == "", "login nodes do not have the volume"

        with cluster.edited(
            lambda values: values["jail"].update(refresh=1, volumes=[DATA, SCRATCH])
        ):
            cluster.deploy("up")
        assert cluster.run("cat /data/note") == "from login"
        assert cluster.run("srun --nodelist=cpu-0 cat /scratch/note") == "mine"


@pytest.mark.usefixtures("claim")
def test_jobs_with_an_overlay_share_an_additional_volume(cluster: Cluster) -> None:
    def overlay(values: dict[str, Any]) -> None:
        values["jail"]["volumes"] = [DATA]
        values["nodesets"][0]["isolation"] = {"overlay": True}

    try:
        with cluster.edited(overlay):
            cluster.deploy("up")
            cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
            in_login(cluster, "chmod 1777 /mnt/jail/data")
            # A ConfigMap contains the plugin's options; the kubelet updates it about once a minute.
            write = "findmnt -no FSTYPE / | grep -qx overlay && touch /data/lasting"
            eventually(
                "a job writes to the volume",
                lambda: cluster.ssh(f"srun sh -c '{write}'", check=False).returncode == 0,
                180,
            )
            assert cluster.run("ls /data").split() == ["lasting"]
    finally:
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def test_jail_generation_that_is_not_kept_is_refused(cluster: Cluster) -> None:
    before = cluster.run("tmux -V")
    with cluster.edited(lambda values: values["jail"].update(refresh=3)):
        cluster.deploy("up")
    with cluster.edited(lambda values: values["jail"].update(refresh=2)):
        refused = cluster.deploy("up", check=False)
    try:
        line = error_line(refused)
        messages = [
            state["terminated"].get("message", "")
            for pod in cluster.pods("jail")
            for status in pod["status"].get("containerStatuses", [])
            if "terminated" in (state := status["state"])
        ]
        expected = "jail.refresh: 2: the jail has generation 3 and keeps generation 0"
        assert any(message.startswith(expected) for message in messages), (line, messages)
        assert cluster.run("tmux -V") == before
    finally:
        cluster.deploy("up")
    assert cluster.run("tmux -V") == before


def test_protected_jail_volume_cannot_be_replaced_and_no_pod_changes(cluster: Cluster) -> None:
    pods = {pod: cluster.pod_uid(pod) for pod in ("cpu-0", "login-0")}
    try:
        with cluster.edited(lambda values: values.update(protect_data=True)):
            cluster.deploy("up")
        for kind in ({"host_path": "/srv"}, {"claim": "other"}):
            with cluster.edited(
                lambda values, kind=kind: values.update(  # type: ignore[misc]
                    protect_data=True, jail={"refresh": 0, **kind}
                )
            ):
                assert "protected" in error_line(cluster.deploy("up", check=False))
    finally:
        cluster.deploy("up")
    assert {pod: cluster.pod_uid(pod) for pod in pods} == pods


def test_node_is_drained_while_its_jail_is_missing(cluster: Cluster) -> None:
    mark = "/mnt/jail/var/lib/slurmstack/jail-refresh"
    in_login(cluster, f"mv {mark} {mark}.away")
    try:
        # Health checks run once a minute.
        eventually(
            "both nodes are drained",
            lambda: set(cluster.nodes().values()) <= {"drain", "drained", "drng"},
            120,
        )
        assert "slurmstack:jail" in cluster.run("sinfo --list-reasons")
    finally:
        in_login(cluster, f"mv {mark}.away {mark}")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
