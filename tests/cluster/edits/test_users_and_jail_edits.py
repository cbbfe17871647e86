"""Edits of users and of the jail reach the running cluster without a restart."""

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
            # The kubelet updates ConfigMaps in running pods about once a minute.
            eventually("the newcomer runs a job", works, 240)
        finally:
            cluster.in_pod("login-0", "sshd", "rm", "-rf", "/mnt/jail/home/newcomer")
    cluster.deploy("up")

    assert {pod: cluster.pod_uid(pod) for pod in pods} == pods


def test_refresh_of_the_jail_repairs_files_and_can_be_reverted(
    cluster: Cluster, folder: str
) -> None:
    def refresh(values: dict[str, Any]) -> None:
        values["jail"]["refresh"] = 1

    def as_root(script: str) -> None:
        cluster.in_pod("login-0", "sshd", "sh", "-c", f"cd /mnt/jail/usr/bin && {script}")

    cluster.run(f"echo mine >{folder}/note")
    as_root("cp tmux tmux.whole && echo 'echo broken' >tmux")
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300")
    cluster.wait_for_job(job, "RUNNING")

    with cluster.edited(refresh):
        cluster.deploy("up")

    assert cluster.run("tmux -V").startswith("tmux ")
    assert cluster.run(f"cat {folder}/note") == "mine"
    assert cluster.job_state(job) == "RUNNING"
    # Names resolve through the pods' own /etc/resolv.conf, which is mounted over the jail's.
    for where in ("", f"srun --jobid={job} --overlap "):
        assert "hosts.slurm.svc" in cluster.run(f"{where}getent hosts login-0")

    cluster.deploy("up")

    assert cluster.run("tmux -V") == "broken", "the previous generation is back"
    assert cluster.run(f"cat {folder}/note") == "mine"
    assert cluster.job_state(job) == "RUNNING"
    as_root("mv tmux.whole tmux")
