"""Commands, their options and what they print: all as on a classic cluster.

For the seeds' tables of command transparency (the same commands, options, output) and of state
transparency (jobs, nodes and resources as Slurm shows them), for the rows "commands", "environment
variables" and "configuration file" of the comparison, and for the checklist of the user's
experience. What accounting has to do with (sacct, sstat, sreport) is not here.
"""

import json

import pytest

from tests.cluster.transparency.shown import NODES, at, everywhere, fields, one, show, typed
from tests.support.cluster import Cluster
from tests.support.waiting import becomes, eventually

COMMANDS = "salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue srun strigger"


def test_a_session_begins_with_a_prompt_of_the_login_node(cluster: Cluster) -> None:
    assert "researcher@login-0:~$" in typed(cluster, "exit\n")


def test_every_command_is_where_it_always_is(cluster: Cluster) -> None:
    seen = everywhere(cluster, f"which {COMMANDS}")

    assert one(seen).split() == [f"/usr/bin/{name}" for name in COMMANDS.split()]


def test_every_command_is_of_the_controllers_version(cluster: Cluster) -> None:
    asked = f"for name in {COMMANDS}; do $name --version; done"
    config = cluster.run("scontrol show config")
    (version,) = (
        line.split()[-1] for line in config.splitlines() if line.startswith("SLURM_VERSION")
    )

    assert set(one(everywhere(cluster, asked)).splitlines()) == {f"slurm-wlm {version}"}


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
def test_an_option_says_what_it_always_says(
    cluster: Cluster, options: str, shown: dict[str, str]
) -> None:
    submit = f"sbatch --parsable --hold {options} --wrap=true"
    seen = fields(
        cluster.run(f"job=$({submit}) && scontrol --oneliner show job $job; scancel $job")
    )

    wanted = {key: value.replace("{job}", seen["JobId"]) for key, value in shown.items()}
    assert {key: seen.get(key) for key in wanted} == wanted


def test_lines_of_a_script_give_way_to_the_environment_and_that_to_the_command_line(
    cluster: Cluster, folder: str
) -> None:
    script = "#!/bin/sh\n#SBATCH --job-name=line --comment=line --nice=1"
    cluster.run("true")
    job = cluster.run(
        f"cd {folder} && printf '%s\\n' '{script}' >job.sh"
        " && SBATCH_JOB_NAME=variable SBATCH_COMMENT=variable"
        " sbatch --parsable --hold --comment=option job.sh"
    )

    seen = show(cluster, f"job {job}")

    assert (seen["Nice"], seen["JobName"], seen["Comment"]) == ("1", "variable", "option")


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
def test_a_table_has_its_usual_columns(cluster: Cluster, command: str, columns: str) -> None:
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
def test_what_scripts_read_is_json(cluster: Cluster, command: str, key: str) -> None:
    assert key in json.loads(cluster.run(command))


def test_a_user_chooses_the_columns(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold", "--job-name=mine")

    told = cluster.run(f"squeue --noheader --jobs={job} --format='%i|%j|%u|%t|%P|%D|%r'")

    assert told == f"{job}|mine|researcher|PD|main|1|JobHeldUser"


def test_a_batch_job_has_slurms_variables(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(
        folder,
        "#!/bin/sh\nenv | grep ^SLURM",
        *("--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--mem=64M"),
        *("--job-name=mine", "--wait", "--output=out"),
    )

    seen = fields(cluster.run(f"cat {folder}/out"))

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
    assert {key: seen.get(key) for key in wanted} == wanted


def test_a_task_has_slurms_variables(cluster: Cluster) -> None:
    names = "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_STEP_NODELIST"
    said = cluster.run(f"srun --nodes=2 sh -c 'echo {names}'").splitlines()

    assert sorted(said) == ["0 0 0 cpu-0 cpu-[0-1]", "1 0 1 cpu-1 cpu-[0-1]"]


def test_the_users_own_variables_go_with_the_job(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\necho ${MINE:-none}"
    submit = f"cd {folder} && export MINE=yes && sbatch --wait --output=%x"
    cluster.run(f"printf '%s\\n' '{script}' >{folder}/job.sh")
    cluster.run(f"{submit} --job-name=all job.sh; {submit} --job-name=few --export=NIL job.sh")

    assert cluster.run(f"cd {folder} && cat all few").split() == ["yes", "none"]


def test_no_variable_tells_of_kubernetes(cluster: Cluster) -> None:
    for said in everywhere(cluster, "env").values():
        assert "PATH=" in said
        for word in ("KUBERNETES", "_SERVICE_", "_PORT=tcp", "K8S", "POD_"):
            assert word not in said


def test_the_configuration_is_the_same_everywhere(cluster: Cluster) -> None:
    """But for what counts on from one question to the next."""
    ask = "scontrol show config | grep --invert-match -e '^Configuration data' -e ^NEXT_JOB_ID"

    assert "ClusterName" in one(everywhere(cluster, ask))


def test_the_configuration_is_a_file_where_users_look_for_it(cluster: Cluster) -> None:
    told = everywhere(cluster, "scontrol show config | grep '^SLURM_CONF '")
    read = everywhere(cluster, "grep ^ClusterName= /etc/slurm/slurm.conf")

    assert one(told).split()[-1] == "/etc/slurm/slurm.conf"
    assert one(read) == f"ClusterName={cluster.stack}"


def test_a_job_is_shown_with_what_it_has(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 60", "--nodelist=cpu-1", "--mem=64M")
    cluster.wait_for_job(job, "RUNNING")

    seen = show(cluster, f"job {job}")

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
    assert {key: seen.get(key) for key in wanted} == wanted


def test_a_node_is_shown_as_a_machine_and_not_as_a_pod(cluster: Cluster) -> None:
    for node in NODES:
        seen = show(cluster, f"node {node}")
        names = [seen[key] for key in ("NodeName", "NodeHostName")]
        assert names == [node, node]
        assert seen["RealMemory"] == "896"
        assert seen["OS"] == "Linux"

    words = cluster.run("sinfo --Node --long; scontrol show nodes; squeue --long").lower()
    for trace in ("pod", "kube", "svc.cluster"):
        assert trace not in words


def test_the_nodes_show_what_jobs_take_of_them(cluster: Cluster, folder: str) -> None:
    def taken() -> list[int]:
        seen = show(cluster, "node cpu-1")
        return [int(seen[key]) for key in ("CPUAlloc", "AllocMem")]

    eventually("nothing runs there", lambda: taken() == [0, 0])
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-1", "--mem=64M")
    cluster.wait_for_job(job, "RUNNING")

    assert taken() == [1, 64]
    # Where the backfill scheduler saw the job wait, it is "mix-" until its next look.
    ask = "sinfo --noheader --nodes=cpu-1 --format='%t %C'"
    becomes("the node", lambda: cluster.run(ask), "mix 1/1/0/2")
    cluster.run(f"scancel {job}")
    eventually("it is free again", lambda: taken() == [0, 0])


def test_a_job_asks_slurm_as_a_session_does(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")

    assert cluster.run(at("cpu-1", f"squeue --noheader --jobs={job} --format=%T")) == "PENDING"
