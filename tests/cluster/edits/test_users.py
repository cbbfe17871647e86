"""Edits of users reach the running cluster without a restart."""

from typing import Any

from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def test_user_has_the_same_uid_in_every_pod(cluster: Cluster) -> None:
    everywhere = [
        cluster.run("id -u researcher"),
        cluster.run("srun id -u researcher"),
        cluster.in_pod(cluster.controller(), "slurmctld", "id", "-u", "researcher").strip(),
        cluster.in_pod("cpu-0", "slurmd", "id", "-u", "researcher").strip(),
    ]

    assert everywhere == ["2000"] * 4


def test_new_user_can_log_in_and_no_pod_restarts(cluster: Cluster) -> None:
    def hire(values: dict[str, Any]) -> None:
        values["users"].append({**values["users"][0], "name": "newcomer", "uid": 2001})

    def works() -> bool:
        answer = cluster.ssh("cd && srun sh -c 'id -un; pwd'", check=False, user="newcomer")
        return answer.stdout.split() == ["newcomer", "/home/newcomer"]

    pods = {
        pod: cluster.pod_uid(pod) for pod in (cluster.controller(), "cpu-0", "cpu-1", "login-0")
    }
    with cluster.edited(hire):
        cluster.deploy("up")
        try:
            # Wait, because the kubelet updates ConfigMaps in running pods about once a minute.
            eventually("the newcomer runs a job", works, 240)
        finally:
            cluster.in_pod("login-0", "sshd", "rm", "-rf", "/mnt/jail/home/newcomer")
    cluster.deploy("up")

    assert {pod: cluster.pod_uid(pod) for pod in pods} == pods
