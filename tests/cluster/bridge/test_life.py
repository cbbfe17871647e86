"""A pod has a job from its start until its last container has stopped."""

import pytest

from tests.cluster.bridge.lab import Lab
from tests.support.waiting import becomes, eventually

STUBBORN = "trap '' TERM; sleep 3600 & while :; do wait; done"
"""A program that ends only when the kubelet kills it."""


def test_pod_runs_on_the_machine_of_its_job_and_both_end_together(lab: Lab) -> None:
    lab.create(lab.manifest("train", "sleep 5"))
    lab.wait_for("train")
    job = lab.job("train")

    name, user, node = lab.shown(job, "JobName", "UserId", "NodeList")
    assert (name, user) == ("lab/train", "researcher(2000)")
    worker = lab.cluster.pod(node)
    assert worker
    assert worker["spec"]["nodeName"] == lab.machine("train")
    assert "lab/train" in lab.cluster.run("squeue --me --noheader --format=%j")

    lab.wait_for("train", "Succeeded")
    lab.wait_for_state(job, "COMPLETED")
    recorded = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=JobName,State"
    becomes("sacct's record", lambda: lab.cluster.run(recorded), "lab/train|COMPLETED")


def test_failed_pod_has_a_failed_job(lab: Lab) -> None:
    lab.create(lab.manifest("broken", "exit 3"))
    lab.wait_for("broken", "Failed")
    job = lab.job("broken")
    lab.wait_for_state(job, "FAILED")


def test_cancelled_job_ends_its_pod_and_waits_for_the_containers(lab: Lab) -> None:
    lab.create(lab.manifest("train", STUBBORN, terminationGracePeriodSeconds=8))
    lab.wait_for("train")
    job = lab.job("train")

    lab.cluster.run(f"scancel {job}")

    eventually("the pod terminates", lambda: "deletionTimestamp" in lab.pod("train")["metadata"])
    while "train" in lab.pods():
        # Ask for the job first: the pod may stop in between.
        state = lab.state(job)
        if lab.phase("train") == "Running":
            assert state == "COMPLETING"
    lab.wait_for_state(job, "CANCELLED")


def test_requeued_job_ends_its_pod_and_does_not_start_again(lab: Lab) -> None:
    lab.create(lab.manifest("train"))
    lab.wait_for("train")
    job = lab.job("train")

    lab.cluster.run(f"scontrol update jobid={job} requeue=1 && scontrol requeue {job}")

    eventually("the pod is deleted", lambda: "train" not in lab.pods())
    lab.wait_for_state(job, "CANCELLED")


def test_deleted_pod_frees_its_cpus_only_when_its_containers_have_stopped(lab: Lab) -> None:
    lab.create(
        *(lab.manifest(name, STUBBORN, terminationGracePeriodSeconds=8) for name in ("one", "two"))
    )
    for name in ("one", "two"):
        lab.wait_for(name)
    machine = lab.machine("one")
    names = [name for name in lab.pods() if lab.machine(name) == machine]
    node = lab.cluster.node_on(machine)

    lab.delete(*names, wait=False)
    job = lab.cluster.submit("~", "#!/bin/sh\nsleep 60", f"--nodelist={node}", "--cpus-per-task=2")

    while any(lab.phase(name) == "Running" for name in names):
        assert lab.state(job) == "PENDING"
    lab.cluster.wait_for_job(job, "RUNNING")


def test_user_starts_no_program_in_the_job_of_a_pod(lab: Lab) -> None:
    lab.create(lab.manifest("train"))
    lab.wait_for("train")
    job = lab.job("train")

    answer = lab.cluster.ssh(f"srun --jobid={job} --overlap true", check=False, timeout=60)

    assert answer.returncode != 0
    lab.wait_for_state(job, "RUNNING")
    assert lab.phase("train") == "Running"


def test_ssh_to_a_node_enters_the_job_and_not_the_pods_job(lab: Lab) -> None:
    job = lab.cluster.submit("~", "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    lab.cluster.wait_for_job(job, "RUNNING")
    lab.create(
        lab.manifest("newer", nodeSelector={"kubernetes.io/hostname": lab.machine_of("cpu-0")})
    )
    lab.wait_for("newer")

    said = lab.cluster.run("ssh -o BatchMode=yes cpu-0 'echo $SLURM_JOB_ID'")

    assert said.strip() == str(job)


@pytest.mark.parametrize("minutes", [1])
def test_time_limit_of_a_job_ends_its_pod(lab: Lab, minutes: int) -> None:
    lab.create(lab.manifest("train", annotations={"slurmstack.dev/timelimit": str(minutes)}))
    lab.wait_for("train")
    job = lab.job("train")

    assert lab.shown(job, "TimeLimit") == [f"00:0{minutes}:00"]
    lab.cluster.run(f"scancel --signal=USR2 --batch {job}")
    becomes("the pods", lambda: list(lab.pods()), [], 60)
