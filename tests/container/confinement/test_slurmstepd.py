"""Limits on the number and the memory of a job's slurmstepd processes."""

from tests.support.spank import Node
from tests.support.waiting import becomes, eventually

MIB = 1 << 20
LIMIT = 512 * MIB


def peak(node: Node, job: str) -> int:
    """Return the peak memory, in bytes, of the cgroup that slurmstepd joins when tasks start."""
    of_v1 = f"memory/slurmstepd/job_{job}/memory.max_usage_in_bytes"
    of_v2 = f"slurmstepd/job_{job}/memory.peak"
    (output, *_) = node.root(f"cd /sys/fs/cgroup; cat {of_v1} {of_v2} 2>/dev/null; echo 0").split()
    return int(output)


def test_refuses_a_step_above_the_limit_of_the_job(node: Node) -> None:
    node.isolate(steps=8)
    job = node.submit("sleep 600", "--mem=100")
    node.controller.wait_for_job(job, "RUNNING")
    step = (f"--jobid={job}", "--overlap", "--mem=0")
    # Start six steps to reach the limit of eight: the job already has two steps, the batch script
    # and the external step.
    step_command = f"srun {' '.join(step)} sleep 600 >/dev/null 2>&1 </dev/null &"
    node.user(f"for n in 1 2 3 4 5 6; do {step_command} done")
    sockets = f"ls /var/spool/slurmd | grep -c '^cpu-0_{job}\\.' || true"
    becomes("the number of steps of the job", lambda: node.root(sockets), "8")

    output = node.refusal("true", *step)

    assert "the job has reached its limit of 8 steps at once on this node" in output
    assert node.user("srun --mem=50 echo another", name="student") == "another"


def test_out_of_memory_killer_ends_tasks_first_and_slurmd_last(node: Node) -> None:
    node.controller.wait_for_job(node.submit("sleep 600", "--mem=100"), "RUNNING")
    score = "cat /proc/$(pgrep --exact --oldest {name})/oom_score_adj"
    # Wait for the task: the job's state is RUNNING before slurmstepd has set the scores.
    (pid, *_) = eventually(
        "the task runs", lambda: node.root("pgrep --full '^sleep 600' || true").split()
    )

    slurmd, slurmstepd = (
        int(node.root(score.format(name=name))) for name in ("slurmd", "slurmstepd")
    )

    assert slurmd < slurmstepd < int(node.root(f"cat /proc/{pid}/oom_score_adj"))


def test_slurmstepd_memory_limit_protects_other_jobs(node: Node) -> None:
    """With --label, the tasks' output passes through slurmstepd, which then needs more memory."""
    node.isolate(shm="2GiB")
    neighbour = node.submit("sleep 600", "--mem=100", name="student")
    node.controller.wait_for_job(neighbour, "RUNNING")

    job = node.user(
        "sbatch --parsable --mem=100 --no-requeue --output=/dev/shm/output"
        f" --wrap 'srun --label --output=/dev/shm/step-%t yes {'0' * 500}; sleep 600'"
    )

    eventually("slurmstepd reaches its limit", lambda: peak(node, job) > LIMIT * 0.99)
    assert peak(node, job) <= LIMIT
    assert node.controller.job_state(neighbour) == "RUNNING"
