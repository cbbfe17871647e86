"""A researcher's everyday work is the same as on any Slurm cluster."""

import re
from pathlib import Path

from local.paths import ROOT
from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually


def test_slurm_commands_are_at_their_usual_paths(cluster: Cluster) -> None:
    assert cluster.run("which sbatch srun squeue sinfo").splitlines() == [
        f"/usr/bin/{name}" for name in ("sbatch", "srun", "squeue", "sinfo")
    ]


def test_sinfo_prints_its_usual_columns_and_plain_node_names(cluster: Cluster) -> None:
    header, row = cluster.run("sinfo").splitlines()

    assert header.split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert row.split() == ["main*", "up", "infinite", "2", "idle", "cpu-[0-1]"]


def test_hosts_resolve_each_others_names(cluster: Cluster) -> None:
    """MPI launchers pass `cpu-0` to every rank, and slurmctld connects to the host of an srun."""
    look_up = "getent hosts cpu-0 cpu-1 login-0"
    answers = [
        cluster.run(look_up),
        cluster.run(f"srun --nodelist=cpu-0 {look_up}"),
        cluster.in_pod(cluster.controller(), "slurmctld", *look_up.split()),
    ]

    for answer in answers:
        names = [line.split()[1].partition(".")[0] for line in answer.strip().splitlines()]
        assert names == ["cpu-0", "cpu-1", "login-0"]


def test_squeue_prints_its_usual_columns(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 60")
    cluster.wait_for_job(job, "RUNNING")

    header, row = cluster.run("squeue").splitlines()

    assert header.split()[:5] == ["JOBID", "PARTITION", "NAME", "USER", "ST"]
    assert header.split()[-1] == "NODELIST(REASON)"
    # Expect `research`, because squeue shows only eight characters of the user's name.
    assert row.split()[:5] == [str(job), "main", "job.sh", "research", "R"]


def test_batch_job_gets_the_options_of_its_sbatch_lines(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/bash
#SBATCH --job-name=first
#SBATCH --output=result-%j.txt
#SBATCH --ntasks=1
echo "$SLURM_JOB_NAME $SLURM_JOB_ID $SLURM_NTASKS $SLURMD_NODENAME $SLURM_SUBMIT_DIR"
pwd
id -un"""
    job = cluster.submit(folder, script, "--wait")

    # The output exists, because `--wait` has returned.
    name, job_id, ntasks, node, submitted, directory, user = cluster.run(
        f"cat {folder}/result-*.txt"
    ).split()
    assert (name, int(job_id), ntasks, user) == ("first", job, "1", "researcher")
    assert node in ("cpu-0", "cpu-1")
    assert submitted == directory == folder
    assert cluster.run(f"stat -c '%U %G' {folder}/result-{job}.txt") == "researcher researcher"


def test_array_job_respects_its_limit_of_simultaneous_tasks(cluster: Cluster, folder: str) -> None:
    script = 'echo "$SLURM_ARRAY_TASK_ID" >>tasks; squeue -h -r -u $USER -t R | wc -l >>running'
    cluster.submit(folder, f"#!/bin/sh\n{script}", "--array=1-10%3", "--wait", "--output=/dev/null")

    assert sorted(map(int, cluster.run(f"cat {folder}/tasks").split())) == list(range(1, 11))
    assert max(map(int, cluster.run(f"cat {folder}/running").split())) <= 3


def test_step_on_two_nodes_runs_on_both_nodes(cluster: Cluster) -> None:
    assert sorted(cluster.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]


def test_srun_starts_mpi_ranks_on_both_nodes(cluster: Cluster) -> None:
    ranks = cluster.run("srun --nodes=2 --mpi=pmix printenv SLURM_PROCID").split()

    assert sorted(ranks) == ["0", "1"]


def test_steps_in_salloc_run_on_the_allocated_nodes(cluster: Cluster) -> None:
    hosts = cluster.run("salloc --quiet --nodes=2 srun hostname")

    assert sorted(hosts.split()) == ["cpu-0", "cpu-1"]


def test_salloc_opens_a_shell_on_the_node(cluster: Cluster) -> None:
    answer = cluster.ssh("echo hostname | salloc --quiet").stdout

    assert answer.strip() in ("cpu-0", "cpu-1")


def test_an_interactive_step_has_a_terminal(cluster: Cluster) -> None:
    shown = cluster.ssh("srun --pty sh -c 'tty; hostname'", tty=True).stdout

    assert re.search(r"/dev/pts/\d+\s+cpu-[01]\b", shown), shown


def test_srun_works_inside_a_batch_job(cluster: Cluster, folder: str) -> None:
    cluster.submit(folder, "#!/bin/sh\nsrun hostname", "--nodes=2", "--wait", "--output=out")

    assert sorted(cluster.run(f"cat {folder}/out").split()) == ["cpu-0", "cpu-1"]


def test_scancel_ends_a_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600")
    cluster.wait_for_job(job, "RUNNING")

    cluster.run(f"scancel {job}")

    cluster.wait_for_job(job, "CANCELLED")


def test_dependent_job_starts_after_the_other_job_ends(cluster: Cluster, folder: str) -> None:
    first = cluster.submit(folder, "#!/bin/sh\nsleep 2; echo first >>order")
    second = cluster.submit(
        folder, "#!/bin/sh\necho second >>order", f"--dependency=afterok:{first}"
    )

    assert cluster.job_state(second) == "PENDING"
    cluster.wait_for_job(second)
    assert cluster.run(f"cat {folder}/order").split() == ["first", "second"]


def test_failed_job_has_state_failed_and_its_exit_code(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nexit 3")

    cluster.wait_for_job(job, "FAILED")
    assert "ExitCode=3:0" in cluster.run(f"scontrol show job {job}")


def test_job_runs_as_the_user_with_the_users_home(cluster: Cluster) -> None:
    home, user = cluster.run("srun sh -c 'echo $HOME; id -un'").split()

    assert (home, user) == ("/home/researcher", "researcher")


def test_scp_copies_files_both_ways(cluster: Cluster, folder: str) -> None:
    config = cluster.directory / "ssh_config"
    execute(["scp", "-F", config, "README.md", f"login:{folder}/readme"])

    size = int(cluster.run(f"stat -c %s {folder}/readme"))
    assert size == (ROOT / "README.md").stat().st_size


def test_login_with_an_unknown_ssh_key_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    config = (cluster.directory / "ssh_config").read_text()
    execute(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"])
    (tmp_path / "config").write_text(
        config.replace(str(cluster.directory / "id_ed25519"), str(tmp_path / "other"))
    )

    answer = execute(["ssh", "-F", tmp_path / "config", "login", "true"], check=False)

    assert answer.returncode == 255
    assert "Permission denied (publickey)" in answer.stderr


def test_job_is_visible_in_a_second_session(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 60")

    eventually("the job is listed", lambda: str(job) in cluster.run("squeue --noheader"))
