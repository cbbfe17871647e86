"""Any pod may go at any time: it comes back, and what ran elsewhere goes on."""

from tests.e2e.cluster import Cluster, eventually


def delete_and_wait(cluster: Cluster, pod: str) -> None:
    before = cluster.pod_uid(pod)
    cluster.kubectl("delete", "pod", pod, timeout=240)
    eventually(f"{pod} is another", lambda: cluster.pod_uid(pod) not in ("", before), 60)
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=90s")


def test_the_controller_comes_back_with_its_queue(cluster: Cluster, folder: str) -> None:
    running = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-0")
    held = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")
    cluster.wait_for_job(running, "RUNNING")
    queue = sorted(cluster.run("squeue -h -o '%A %T %N %S'").splitlines())

    delete_and_wait(cluster, "controller-0")

    eventually("Slurm answers", lambda: cluster.ssh("sinfo", check=False).returncode == 0)
    assert sorted(cluster.run("squeue -h -o '%A %T %N %S'").splitlines()) == queue
    cluster.run(f"scontrol release {held}")
    cluster.wait_for_job(held, "COMPLETED")
    assert cluster.job_state(running) == "RUNNING"


def test_a_worker_comes_back_while_jobs_elsewhere_go_on(cluster: Cluster, folder: str) -> None:
    elsewhere = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-0")
    cluster.wait_for_job(elsewhere, "RUNNING")

    delete_and_wait(cluster, "cpu-1")

    eventually("cpu-1 is idle", lambda: cluster.nodes().get("cpu-1") == "idle")
    assert cluster.job_state(elsewhere) == "RUNNING"
    # Its address is another one now: a step must find it all the same.
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_a_worker_that_dies_unprepared_comes_back(cluster: Cluster) -> None:
    before = cluster.pod_uid("cpu-1")
    cluster.kubectl("delete", "pod", "cpu-1", "--grace-period=0", "--force", timeout=120)

    eventually("cpu-1 is another", lambda: cluster.pod_uid("cpu-1") not in ("", before), 60)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/cpu-1", "--timeout=90s")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_login_comes_back_as_the_same_host(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300")
    cluster.wait_for_job(job, "RUNNING")

    delete_and_wait(cluster, "login-0")

    # ssh checks the host key strictly: a new one would be refused.
    eventually("one can log in", lambda: cluster.ssh("true", check=False).returncode == 0)
    assert cluster.job_state(job) == "RUNNING"
    assert cluster.run(f"ls -d {folder}") == folder


def test_somebody_elses_drain_survives_the_pod(cluster: Cluster) -> None:
    scontrol = ("controller-0", "slurmctld", "scontrol", "update", "nodename=cpu-1")
    cluster.in_pod(*scontrol, "state=drain", "reason=bad DIMM")
    try:
        delete_and_wait(cluster, "cpu-1")
        eventually("cpu-1 has registered", lambda: "*" not in cluster.nodes().get("cpu-1", "*"))
        assert cluster.run("sinfo -h -n cpu-1 -o %E") == "bad DIMM"
        assert cluster.nodes()["cpu-1"] == "drain"
    finally:
        cluster.in_pod(*scontrol, "state=resume")
    cluster.wait_for_nodes("cpu-0", "cpu-1")
