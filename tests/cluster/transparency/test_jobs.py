"""Jobs: scripts, arrays, dependencies, several nodes, control of jobs, and final states.

Covers these parts of the original requirements:
- a user's work: prepare a script, submit it, look at the job, read the result;
- arrays with a limit of simultaneous tasks, training jobs and genome jobs with their resources;
- the life of a job as its user sees it;
- the rows "job submission" and "state queries" in the table that compares slurmstack with a Slurm
  cluster without Kubernetes.
"""

import re

import pytest

from tests.cluster.transparency.shown import NODES, show
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

SCRIPT = """#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --time=10:00
#SBATCH --output=job_%j.out
echo "task $(srun printenv SLURM_PROCID | sort | tr '\\n' ' ')"
"""


def submitted(cluster: Cluster, command: str) -> int:
    """Return the id of the job that a command submits."""
    return int(cluster.run(command).rpartition("\n")[2])


def test_submitted_script_writes_its_result(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && cat >my_job.sh <<'EOF'\n{SCRIPT}EOF")

    output = cluster.run(f"cd {folder} && sbatch my_job.sh")

    match = re.fullmatch(r"Submitted batch job (\d+)", output)
    assert match, output
    job = int(match[1])
    assert show(cluster, f"job {job}")["JobName"] == "my_job.sh"
    cluster.wait_for_job(job)
    assert cluster.run(f"cat {folder}/job_{job}.out").split() == ["task", "0", "1"]


def test_output_is_in_slurms_default_file(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\necho out; echo error >&2", "--wait")

    assert cluster.run(f"cat {folder}/slurm-{job}.out").split() == ["out", "error"]


def test_output_is_readable_while_the_job_runs(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\necho begun; sleep 60; echo done")

    eventually(
        "the output has the first line",
        lambda: cluster.run(f"cat {folder}/slurm-{job}.out", check=False) == "begun",
    )


def test_error_option_of_sbatch_separates_errors_from_output(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\necho out; echo error >&2"
    cluster.submit(folder, script, "--wait", "--output=%x-%j.out", "--error=%x-%N.err", "-J mine")

    assert cluster.run(f"cd {folder} && cat mine-*.out") == "out"
    assert cluster.run(f"cd {folder} && cat mine-cpu-[01].err") == "error"


def test_sbatch_with_wrap_submits_a_command_without_a_script(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && sbatch --wait --output=out --wrap='echo $SLURM_JOB_NAME'")

    assert cluster.run(f"cat {folder}/out") == "wrap"


def test_sbatch_reads_a_script_from_standard_input(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && sbatch --wait --output=out <<'EOF'\n#!/bin/sh\necho read\nEOF")

    assert cluster.run(f"cat {folder}/out") == "read"


def test_job_gets_the_requested_resources(cluster: Cluster, folder: str) -> None:
    """The training job of the original requirements, reduced to the size of this cluster."""
    options = ["--ntasks=2", "--cpus-per-task=1", "--mem=128M", "--time=04:00:00"]
    job = cluster.submit(folder, "#!/bin/sh\nsleep 60", *options, "--output=training_%j.out")
    cluster.wait_for_job(job, "RUNNING")

    record = show(cluster, f"job {job}")

    assert (record["NumCPUs"], record["TimeLimit"]) == ("2", "04:00:00")
    assert f"mem={128 * int(record['NumNodes'])}M" in record["AllocTRES"]


def test_impossible_request_is_refused_at_once(cluster: Cluster) -> None:
    answer = cluster.ssh("sbatch --cpus-per-task=8 --mem=16G --wrap=true", check=False)

    assert answer.returncode == 1
    assert "sbatch: error: " in answer.stderr


# --- Arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "throttle"), [("1-100", 10), ("1-1000", 50)])
def test_squeue_shows_an_array_as_one_line(
    cluster: Cluster, folder: str, tasks: str, throttle: int
) -> None:
    array = f"--array={tasks}%{throttle}"
    job = cluster.submit(folder, "#!/bin/sh\ntrue", array, "--partition=main", "--hold")

    assert (
        cluster.run(f"squeue --noheader --jobs={job} --format=%i") == f"{job}_[{tasks}%{throttle}]"
    )
    assert show(cluster, f"job {job}")["ArrayTaskThrottle"] == str(throttle)


def test_throttle_limits_running_tasks_of_an_array(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
echo $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_JOB_ID
squeue --noheader --array --jobs=$SLURM_ARRAY_JOB_ID --states=running | wc --lines >>running"""
    job = cluster.submit(folder, script, "--array=1-5%2", "--wait")

    lines = cluster.run(f"cd {folder} && tail --quiet --lines=1 slurm-{job}_[1-5].out").splitlines()
    assert lines == [f"{task} 5 {job}" for task in range(1, 6)]
    assert max(map(int, cluster.run(f"cat {folder}/running").split())) <= 2


def test_cancelling_one_array_task_keeps_the_other_tasks(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--array=1-3", "--hold")

    left = cluster.run(
        f"scancel {job}_2; squeue --noheader --array --jobs={job} --states=pending --format=%i"
    )

    assert sorted(left.split()) == [f"{job}_1", f"{job}_3"]


# --- Dependencies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "first", "state"),
    [
        ("afterok", "true", "COMPLETED"),
        ("afterok", "false", "CANCELLED"),
        ("afternotok", "false", "COMPLETED"),
        ("afternotok", "true", "CANCELLED"),
        ("afterany", "false", "COMPLETED"),
        ("after", "sleep 60", "COMPLETED"),
    ],
)
def test_dependency_on_another_job_is_honoured(
    cluster: Cluster, folder: str, kind: str, first: str, state: str
) -> None:
    submit = "sbatch --parsable --output=/dev/null"
    other, job = cluster.run(
        f"cd {folder}; first=$({submit} --wrap='{first}'); echo $first;"
        f" {submit} --dependency={kind}:$first --kill-on-invalid-dep=yes --wrap=true"
    ).split()
    if first.startswith("sleep"):
        cluster.wait_for_job(int(other), "RUNNING")

    cluster.wait_for_job(int(job), state)


def test_singleton_runs_one_job_per_name_at_a_time(cluster: Cluster, folder: str) -> None:
    submit = f"cd {folder}; sbatch --parsable --job-name=only --dependency=singleton"
    first, second = cluster.run(f"{submit} --wrap='sleep 60'; {submit} --wrap='sleep 60'").split()
    cluster.wait_for_job(int(first), "RUNNING")

    assert show(cluster, f"job {second}")["Reason"] == "Dependency"


# --- Several nodes --------------------------------------------------------------------------------


def test_job_on_two_nodes_can_list_its_nodes(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
echo $SLURM_JOB_NODELIST
scontrol show hostnames $SLURM_JOB_NODELIST
srun hostname | sort"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    assert cluster.run(f"cat {folder}/out").split() == ["cpu-[0-1]", *NODES, *NODES]


def test_the_parts_of_a_heterogeneous_job_run_together(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
#SBATCH --ntasks=1 --mem=64M --nodelist=cpu-0
#SBATCH hetjob
#SBATCH --ntasks=1 --mem=32M --nodelist=cpu-1
echo $SLURM_HET_SIZE $SLURM_JOB_NODELIST_HET_GROUP_0 $SLURM_JOB_NODELIST_HET_GROUP_1
squeue --noheader --jobs=$SLURM_JOB_ID --format=%i | sort
srun --het-group=0,1 --label hostname | sort
echo $SLURM_MEM_PER_NODE_HET_GROUP_0 $SLURM_MEM_PER_NODE_HET_GROUP_1"""
    job = cluster.submit(folder, script, "--wait", "--output=out")

    assert cluster.run(f"cat {folder}/out").splitlines() == [
        "2 cpu-0 cpu-1",
        f"{job}+0",
        f"{job}+1",
        "0: cpu-0",
        "1: cpu-1",
        "64 32",
    ]


def test_option_multi_prog_runs_a_different_program_for_each_task(
    cluster: Cluster, folder: str
) -> None:
    cluster.run(f"printf '0 echo leads %%t\\n1 echo follows %%t\\n' >{folder}/programs")

    output = cluster.run(f"srun --nodes=2 --multi-prog {folder}/programs")

    assert sorted(output.splitlines()) == ["follows 1", "leads 0"]


# --- Steps ----------------------------------------------------------------------------------------


def test_squeue_lists_steps_with_number_and_name(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
srun true
srun --job-name=second squeue --noheader --steps=$SLURM_JOB_ID.1 --format='%i %j'"""
    job = cluster.submit(folder, script, "--wait", "--output=out")

    assert cluster.run(f"cat {folder}/out") == f"{job}.1 second"


def test_two_steps_run_at_the_same_time(cluster: Cluster, folder: str) -> None:
    """Each step waits for the other, so neither would end if they ran one after the other."""
    script = """#!/bin/sh
await() { touch $1; timeout 30 sh -c "until [ -e $2 ]; do sleep 0.1; done" && echo met $2; }
if [ "$1" ]; then await $1 $2; exit; fi
srun --nodes=1 --ntasks=1 --exact $PWD/job.sh one two &
srun --nodes=1 --ntasks=1 --exact $PWD/job.sh two one &
wait"""
    cluster.run(f"touch {folder}/job.sh && chmod +x {folder}/job.sh")
    cluster.submit(folder, script, "--nodes=2", "--ntasks=2", "--wait", "--output=out")

    assert sorted(cluster.run(f"cat {folder}/out").splitlines()) == ["met one", "met two"]


def test_srun_returns_the_exit_code_of_a_failed_step(cluster: Cluster) -> None:
    answer = cluster.ssh("srun sh -c 'exit 7'", check=False)

    assert answer.returncode == 7
    assert "Exited with exit code 7" in answer.stderr


def test_sattach_shows_what_a_running_step_prints(cluster: Cluster, folder: str) -> None:
    step = "touch begun; until [ -e seen ]; do echo working; sleep 0.2; done"
    job = cluster.submit(folder, f"#!/bin/sh\nsrun sh -c '{step}'")
    # Wait for the file, because Slurm lists a step before sattach can attach to the step.
    eventually("the step runs", lambda: "begun" in cluster.run(f"ls {folder}"))

    attached = cluster.run(
        f"cd {folder}; timeout 60 sattach {job}.0"
        " | while read line; do touch seen; echo $line; done"
    )

    assert set(attached.splitlines()) == {"working"}
    cluster.wait_for_job(job)


def test_sbcast_copies_a_file_to_every_node(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
echo brought >file
sbcast file /tmp/file && srun sh -c 'echo $SLURMD_NODENAME $(cat /tmp/file)' | sort"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    assert cluster.run(f"cat {folder}/out").splitlines() == [f"{node} brought" for node in NODES]


def test_sgather_copies_a_file_from_every_node(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
srun sh -c 'head -c 100000 /dev/urandom >/tmp/part; md5sum </tmp/part' | sort >sums
export SLURM_LABELIO=1 SLURM_UNBUFFEREDIO=1
sgather /tmp/part all && md5sum <all.cpu-0 >found && md5sum <all.cpu-1 >>found
sort found | cmp - sums && echo same
sgather /tmp/part all || sgather --force /tmp/part all && echo again"""
    cluster.submit(folder, script, "--nodes=2", "--wait", "--output=out")

    output = cluster.run(f"cat {folder}/out").splitlines()
    assert output == [
        "same",
        "sgather: all.cpu-0 exists: use --force to replace it, or --keep to keep it",
        "again",
    ]


def test_bcast_option_of_srun_copies_the_program(cluster: Cluster) -> None:
    output = cluster.run("srun --nodes=2 --bcast=/tmp/program /usr/bin/hostname")

    assert sorted(output.split()) == list(NODES)


# --- Control of jobs ------------------------------------------------------------------------------


def test_sbatch_with_wait_returns_the_jobs_exit_code(cluster: Cluster, folder: str) -> None:
    answer = cluster.ssh(f"cd {folder} && sbatch --wait --wrap='exit 3'", check=False)

    assert answer.returncode == 3


def test_held_job_can_be_changed_and_released(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")

    change = f"scontrol update JobId={job} JobName=renamed TimeLimit=5"
    before = show(cluster, f"job {job}")
    cluster.run(f"{change} && scontrol release {job}")

    assert (before["JobState"], before["Reason"]) == ("PENDING", "JobHeldUser")
    cluster.wait_for_job(job)
    after = show(cluster, f"job {job}")
    assert (after["JobName"], after["TimeLimit"]) == ("renamed", "00:05:00")


def test_requeued_job_sees_its_restart_count(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
echo run ${SLURM_RESTART_COUNT:-0} >>runs
[ "$SLURM_RESTART_COUNT" ] || sleep 60"""
    job = cluster.submit(folder, script, "--requeue", "--open-mode=append")
    eventually(
        "the first run has begun", lambda: cluster.run(f"cat {folder}/runs", check=False) == "run 0"
    )

    cluster.run(f"scontrol requeue {job}")

    # After the end of the first run, Slurm waits two minutes, until the credentials of that run
    # have expired.
    eventually(
        "the job is pending again", lambda: show(cluster, f"job {job}")["JobState"] == "PENDING"
    )
    # Wait two seconds before the second run starts. When the first run was requeued, Slurm revoked
    # its credential. slurmd also refuses a new credential that has the same time, in whole seconds.
    cluster.run(f"sleep 2; scontrol update JobId={job} StartTime=now")
    cluster.wait_for_job(job)
    assert cluster.run(f"cat {folder}/runs").splitlines() == ["run 0", "run 1"]
    assert show(cluster, f"job {job}")["Restarts"] == "1"


LISTENS = "trap 'echo told; exit 0' USR1; echo ready; while true; do sleep 0.1; done"


@pytest.mark.parametrize(
    ("script", "option"),
    [(LISTENS, "--batch"), (f'srun sh -c "{LISTENS}"', "")],
    ids=["script", "steps"],
)
def test_scancel_sends_a_signal_to_script_or_steps(
    cluster: Cluster, folder: str, script: str, option: str
) -> None:
    cluster.run(f"cat >{folder}/job.sh <<'END-OF-FILE'\n#!/bin/bash\n{script}\nEND-OF-FILE")
    job = submitted(cluster, f"cd {folder} && sbatch --parsable --output=out job.sh")
    eventually(
        "the script is ready", lambda: cluster.run(f"cat {folder}/out", check=False) == "ready"
    )

    cluster.run(f"scancel --signal=USR1 {option} {job}")

    cluster.wait_for_job(job)
    assert "told" in cluster.run(f"cat {folder}/out").split()


def test_cancelled_job_has_time_to_clean_up(cluster: Cluster, folder: str) -> None:
    step = "trap 'echo ordered; exit' TERM; echo ready; while true; do sleep 0.1; done"
    job = cluster.submit(folder, f'#!/bin/sh\nexec srun sh -c "{step}"', "--output=out")
    eventually(
        "the script is ready", lambda: cluster.run(f"cat {folder}/out", check=False) == "ready"
    )

    cluster.run(f"scancel {job}")

    cluster.wait_for_job(job, "CANCELLED")
    eventually("the trap has run", lambda: "ordered" in cluster.run(f"cat {folder}/out"))


@pytest.mark.parametrize(
    "how", ["--name=mine", "--user=researcher --name=mine", "--me --name=mine"]
)
def test_scancel_selects_jobs_by_name_and_user(cluster: Cluster, folder: str, how: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold", "--job-name=mine")

    cluster.run(f"scancel {how}")

    assert cluster.job_state(job) == "CANCELLED"


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        ("true", "COMPLETED", "0:0"),
        ("exit 3", "FAILED", "3:0"),
        ("kill -9 $$", "FAILED", "0:9"),
        ("no-such-command", "FAILED", "127:0"),
    ],
)
def test_exit_code_of_the_script_determines_the_jobs_state(
    cluster: Cluster, folder: str, script: str, state: str, code: str
) -> None:
    job = cluster.submit(folder, f"#!/bin/sh\n{script}")

    cluster.wait_for_job(job, state)
    assert show(cluster, f"job {job}")["ExitCode"] == code


def test_job_gets_a_signal_before_its_time_limit(
    cluster: Cluster, overdue: int, overdue_folder: str
) -> None:
    cluster.wait_for_job(overdue, "TIMEOUT", timeout=130)

    output = cluster.run(f"cat {overdue_folder}/overdue")
    assert "the end is near" in output
    assert "DUE TO TIME LIMIT" in output
    assert show(cluster, f"job {overdue}")["Reason"] == "TimeLimit"
