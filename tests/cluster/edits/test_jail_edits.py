"""A refresh of the jail, refused settings, and a jail that is missing."""

from typing import Any

from tests.cluster.errors import error_line
from tests.support.cluster import Cluster
from tests.support.waiting import becomes


def in_login(cluster: Cluster, script: str) -> str:
    return cluster.in_pod("login-0", "sshd", "sh", "-c", script)


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
    # Names still resolve, because each pod mounts its own /etc/resolv.conf over the jail's file.
    for where in ("", f"srun --jobid={job} --overlap "):
        assert "hosts.slurm.svc" in cluster.run(f"{where}getent hosts login-0")

    cluster.deploy("up")

    assert cluster.run("tmux -V") == "broken", "the edit brings the earlier files back"
    assert cluster.run(f"cat {folder}/note") == "mine"
    assert cluster.job_state(job) == "RUNNING"
    as_root("mv tmux.whole tmux")


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
        expected = (
            "jail.refresh: 2: generation 2 is not available: the jail has generation 3 and keeps "
            "only generation 0"
        )
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
                line = error_line(cluster.deploy("up", check=False))
                assert "is protected" in line
                assert f"jail.{next(iter(kind))}" in line
                assert "protect_data" in line
    finally:
        cluster.deploy("up")
    assert {pod: cluster.pod_uid(pod) for pod in pods} == pods


def test_node_is_drained_while_its_jail_is_missing(cluster: Cluster) -> None:
    mark = "/mnt/jail/var/lib/slurmstack/jail-refresh"

    def in_service() -> set[tuple[str, str]]:
        drained = ("drain", "drained", "drng")
        return {node for node in cluster.nodes().items() if node[1] not in drained}

    in_login(cluster, f"mv {mark} {mark}.away")
    try:
        becomes("the set of nodes in service", in_service, set(), 120)
        assert "slurmstack:jail" in cluster.run("sinfo --list-reasons")
    finally:
        in_login(cluster, f"mv {mark}.away {mark}")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
