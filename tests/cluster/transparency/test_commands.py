"""Commands, their options and their output are the same as without Kubernetes.

Covers these parts of the original requirements:
- command transparency: the same commands, options and output;
- state transparency: jobs, nodes and resources as Slurm shows them;
- the rows "commands", "environment variables" and "configuration file" in the table that compares
  slurmstack with a Slurm cluster without Kubernetes;
- the checklist of the user's experience, except accounting (sacct, sstat, sreport).
"""

import json

import pytest

from tests.cluster.transparency.shown import (
    NODES,
    at,
    common_answer,
    everywhere,
    fields,
    show,
    typed,
)
from tests.support.cluster import Cluster
from tests.support.waiting import becomes, eventually

COMMANDS = "salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue srun strigger"


def test_session_begins_with_a_prompt_that_names_the_login_node(cluster: Cluster) -> None:
    assert "researcher@login-0:~$" in typed(cluster, "exit\n")


def test_every_command_is_in_usr_bin(cluster: Cluster) -> None:
    paths = everywhere(cluster, f"which {COMMANDS}")

    assert common_answer(paths).split() == [f"/usr/bin/{name}" for name in COMMANDS.split()]


def test_every_command_reports_the_version_of_slurmctld(cluster: Cluster) -> None:
    asked = f"for name in {COMMANDS}; do $name --version; done"
    config = cluster.run("scontrol show config")
    (version,) = (
        line.split()[-1] for line in config.splitlines() if line.startswith("SLURM_VERSION")
    )

    assert set(common_answer(everywhere(cluster, asked)).splitlines()) == {f"slurm-wlm {version}"}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("--ntasks=2", {"NumTasks": "2"}),
        ("--ntasks=2 --cpus-per-task=2", {"NumTasks": "2", "CPUs/Task": "2", "NumCPUs": "4"}),
        ("--nodes=2 --ntasks-per-node=2", {"NumNodes": "2-2", "NtasksPerN:B:S:C": "2:0:*:*"}),
        ("--mem=100M", {"MinMemoryNode": "100M"}),
        ("--mem-per-cpu=50", {"MinMemoryCPU": "50M"}),
        ("--time=10:00", {"TimeLimit": "00:10:00"}),
        ("--time=04:00:00", {"TimeLimit": "04:00:00"}),
        ("--time=1-12", {"TimeLimit": "1-12:00:00"}),
        ("--partition=main", {"Partition": "main"}),
        ("--job-name=mine", {"JobName": "mine"}),
        ("--output=training_%j.out", {"StdOut": "/home/researcher/training_{job}.out"}),
        ("--error=%x.err", {"StdErr": "/home/researcher/wrap.err"}),
        ("--chdir=/tmp", {"WorkDir": "/tmp", "StdOut": "/tmp/slurm-{job}.out"}),
        ("--nodelist=cpu-1", {"ReqNodeList": "cpu-1"}),
        ("--exclude=cpu-0", {"ExcNodeList": "cpu-0"}),
        ("--constraint=cpu", {"Features": "cpu"}),
        ("--exclusive", {"OverSubscribe": "NO"}),
        ("--no-requeue", {"Requeue": "0"}),
        ("--nice=5", {"Nice": "5"}),
        ("--comment=for-the-paper", {"Comment": "for-the-paper"}),
        ("--begin=2038-01-01", {"EligibleTime": "2038-01-01T00:00:00"}),
    ],
)
def test_option_of_sbatch_has_its_usual_effect(
    cluster: Cluster, options: str, shown: dict[str, str]
) -> None:
    submit = f"sbatch --parsable --hold {options} --wrap=true"
    record = fields(
        cluster.run(f"job=$({submit}) && scontrol --oneliner show job $job; scancel $job")
    )

    wanted = {key: value.replace("{job}", record["JobId"]) for key, value in shown.items()}
    assert {key: record.get(key) for key in wanted} == wanted


def test_options_override_variables_and_variables_override_script_lines(
    cluster: Cluster, folder: str
) -> None:
    script = "#!/bin/sh\n#SBATCH --job-name=line --comment=line --nice=1"
    cluster.run("true")
    job = cluster.run(
        f"cd {folder} && printf '%s\\n' '{script}' >job.sh"
        " && SBATCH_JOB_NAME=variable SBATCH_COMMENT=variable"
        " sbatch --parsable --hold --comment=option job.sh"
    )

    record = show(cluster, f"job {job}")

    assert (record["Nice"], record["JobName"], record["Comment"]) == ("1", "variable", "option")


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        ("sinfo", "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST"),
        ("sinfo --summarize", "PARTITION AVAIL TIMELIMIT NODES(A/I/O/T) NODELIST"),
        ("sinfo --list-reasons", "REASON USER TIMESTAMP NODELIST"),
        (
            "sinfo --Node --long | tail --lines=+2",
            "NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON",
        ),
        ("squeue", "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)"),
        (
            "squeue --long | tail --lines=+2",
            "JOBID PARTITION NAME USER STATE TIME TIME_LIMI NODES NODELIST(REASON)",
        ),
        ("squeue --steps", "STEPID NAME PARTITION USER TIME NODELIST"),
        (
            "squeue --start",
            "JOBID PARTITION NAME USER ST START_TIME NODES SCHEDNODES NODELIST(REASON)",
        ),
    ],
)
def test_sinfo_and_squeue_print_their_usual_columns(
    cluster: Cluster, command: str, columns: str
) -> None:
    assert cluster.run(command).splitlines()[0].split() == columns.split()


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("squeue --json", "jobs"),
        ("sinfo --json", "sinfo"),
        ("scontrol show nodes --json", "nodes"),
        ("scontrol show partitions --json", "partitions"),
    ],
)
def test_slurm_command_prints_json(cluster: Cluster, command: str, key: str) -> None:
    assert key in json.loads(cluster.run(command))


def test_user_can_choose_the_columns_of_squeue(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold", "--job-name=mine")

    output = cluster.run(f"squeue --noheader --jobs={job} --format='%i|%j|%u|%t|%P|%D|%r'")

    assert output == f"{job}|mine|researcher|PD|main|1|JobHeldUser"


def test_batch_job_has_the_environment_variables_of_slurm(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(
        folder,
        "#!/bin/sh\nenv | grep ^SLURM",
        *("--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--mem=64M"),
        *("--job-name=mine", "--wait", "--output=out"),
    )

    variables = fields(cluster.run(f"cat {folder}/out"))

    wanted = {
        "SLURM_CLUSTER_NAME": cluster.stack,
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_JOBID": str(job),
        "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NAME": "mine",
        "SLURM_JOB_NODELIST": "cpu-[0-1]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_PARTITION": "main",
        "SLURM_JOB_UID": "2000",
        "SLURM_JOB_USER": "researcher",
        "SLURM_MEM_PER_NODE": "64",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "cpu-[0-1]",
        "SLURM_NPROCS": "2",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": folder,
        "SLURM_SUBMIT_HOST": "login-0",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURMD_NODENAME": "cpu-0",
    }
    assert {key: variables.get(key) for key in wanted} == wanted


def test_task_has_the_environment_variables_of_slurm(cluster: Cluster) -> None:
    names = "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_STEP_NODELIST"
    output = cluster.run(f"srun --nodes=2 sh -c 'echo {names}'").splitlines()

    assert sorted(output) == ["0 0 0 cpu-0 cpu-[0-1]", "1 0 1 cpu-1 cpu-[0-1]"]


def test_export_option_limits_the_variables_that_a_job_gets(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\necho ${MINE:-none}"
    submit = f"cd {folder} && export MINE=yes && sbatch --wait --output=%x"
    cluster.run(f"printf '%s\\n' '{script}' >{folder}/job.sh")
    cluster.run(f"{submit} --job-name=all job.sh; {submit} --job-name=few --export=NIL job.sh")

    assert cluster.run(f"cd {folder} && cat all few").split() == ["yes", "none"]


def test_no_variable_reveals_kubernetes(cluster: Cluster) -> None:
    for output in everywhere(cluster, "env").values():
        assert "PATH=" in output
        for word in ("KUBERNETES", "_SERVICE_", "_PORT=tcp", "K8S", "POD_"):
            assert word not in output


def test_the_configuration_is_the_same_everywhere(cluster: Cluster) -> None:
    """The test ignores lines of scontrol that change between two calls."""
    ask = "scontrol show config | grep --invert-match -e '^Configuration data' -e ^NEXT_JOB_ID"

    assert "ClusterName" in common_answer(everywhere(cluster, ask))


def test_configuration_file_is_at_its_usual_path(cluster: Cluster) -> None:
    setting = everywhere(cluster, "scontrol show config | grep '^SLURM_CONF '")
    read = everywhere(cluster, "grep ^ClusterName= /etc/slurm/slurm.conf")

    assert common_answer(setting).split()[-1] == "/etc/slurm/slurm.conf"
    assert common_answer(read) == f"ClusterName={cluster.stack}"


def test_scontrol_shows_the_resources_of_a_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 60", "--nodelist=cpu-1", "--mem=64M")
    cluster.wait_for_job(job, "RUNNING")

    record = show(cluster, f"job {job}")

    wanted = {
        "JobState": "RUNNING",
        "UserId": "researcher(2000)",
        "NodeList": "cpu-1",
        "BatchHost": "cpu-1",
        "NumCPUs": "1",
        "AllocTRES": "cpu=1,mem=64M,node=1,billing=1",
        "Command": f"{folder}/job.sh",
        "WorkDir": folder,
        "StdOut": f"{folder}/slurm-{job}.out",
    }
    assert {key: record.get(key) for key in wanted} == wanted


def test_node_record_does_not_show_that_nodes_are_pods(cluster: Cluster) -> None:
    for node in NODES:
        record = show(cluster, f"node {node}")
        names = [record[key] for key in ("NodeName", "NodeHostName")]
        assert names == [node, node]
        assert record["RealMemory"] == "896"
        assert record["OS"] == "Linux"

    words = cluster.run("sinfo --Node --long; scontrol show nodes; squeue --long").lower()
    for trace in ("pod", "kube", "svc.cluster"):
        assert trace not in words


def test_node_record_shows_allocated_resources(cluster: Cluster, folder: str) -> None:
    def taken() -> list[int]:
        record = show(cluster, "node cpu-1")
        return [int(record[key]) for key in ("CPUAlloc", "AllocMem")]

    eventually("no job runs on cpu-1", lambda: taken() == [0, 0])
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-1", "--mem=64M")
    cluster.wait_for_job(job, "RUNNING")

    assert taken() == [1, 64]
    # Wait for the state "mix". If the backfill scheduler saw the job wait, the state is "mix-"
    # until the next cycle of this scheduler.
    ask = "sinfo --noheader --nodes=cpu-1 --format='%t %C'"
    becomes("the state of the node", lambda: cluster.run(ask), "mix 1/1/0/2")
    cluster.run(f"scancel {job}")
    eventually("cpu-1 is free again", lambda: taken() == [0, 0])


def test_slurm_commands_work_inside_a_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")

    assert cluster.run(at("cpu-1", f"squeue --noheader --jobs={job} --format=%T")) == "PENDING"
