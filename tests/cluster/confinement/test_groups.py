"""Jobs cannot write to cgroups, and a job's cgroups disappear when the job ends."""

import time
from pathlib import PurePath

import pytest

from components import conventions as c
from tests.cluster.confinement.groups import LIMIT, LOCKED, groups
from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD
from tests.support.waiting import becomes, eventually

DAEMONS = "/slurmstepd/job_"
"""This text is in the path of the cgroup that contains all slurmstepd processes of a job."""
DAEMON = "slurmstepd"
PROCESSES = """
from pathlib import Path
from tempfile import TemporaryDirectory
from agents.checks.readers import processes
with TemporaryDirectory() as folder:
    print(processes({}, state=Path(folder)))
"""
"""Program that prints the processes that the check `stuck-processes` reads, one in each line. Field
6 of a hanging process is not `-`."""


@pytest.mark.parametrize("user", ["researcher", "root"])
def test_jobs_cannot_write_to_cgroups(cluster: Cluster, user: str) -> None:
    script = (
        f"test -r {LIMIT} && echo seen;"
        "find -L /sys/fs/cgroup -maxdepth 4 -name cgroup.procs -writable 2>/dev/null;"
        "for top in /sys/fs/cgroup/ /sys/fs/cgroup/*/;"
        "do mkdir $top/mine 2>/dev/null && echo made; done; true"
    )
    command = f"srun --mem=50 -N1 sh -c '{script}'"

    output = cluster.as_user(0, 0, command) if user == "root" else cluster.run(command)

    assert output.split() == ["seen"]


def test_job_of_root_cannot_write_output_to_a_cgroup(cluster: Cluster) -> None:
    limit = ("cpu-0", "slurmd", "sh", "-c", f"echo {LIMIT}; cat {LIMIT}")
    before = cluster.in_pod(*limit)
    file = before.split()[0]

    cluster.as_user(
        0, 0, f"cd / && srun --mem=50 -N1 -w cpu-0 --output={file} echo 1099511627776", check=False
    )

    assert cluster.in_pod(*limit) == before


def test_slurmstepd_cannot_create_or_replace_a_file_of_a_cgroup(cluster: Cluster) -> None:
    """slurmstepd checks a path before it opens the file. A link could change in between, so the
    library that slurmstepd loads checks the opened file again."""
    write = f"cat {LIMIT} > /tmp/limit && cat /tmp/limit > {LIMIT}"
    shell = ("cpu-0", "slurmd", "env", f"WRITE={write}", "sh", "-c")
    library = f"LD_PRELOAD={c.PROGRAMS}/preload.so"

    assert cluster.in_pod(*shell, 'sh -c "$WRITE" && echo written').split() == ["written"]
    refused = cluster.in_pod(*shell, f'{library} sh -c "$WRITE" 2>&1; true')
    assert "Operation not permitted" in refused


def test_job_of_root_cannot_read_input_from_a_cgroup(cluster: Cluster) -> None:
    file = cluster.in_pod("cpu-0", "slurmd", "sh", "-c", f"echo {LIMIT}")
    streams = f"--input={PurePath(file).parent} --output=/root/said"
    job = f"sbatch --wait --mem=50 -N1 -w cpu-0 {streams} --wrap 'echo it ran'"

    output = cluster.as_user(0, 0, f"{job}; cat /root/said; rm /root/said")

    assert "--input, --output or --error is in a cgroup" in output


def test_user_cannot_lock_the_folders_that_slurm_locks(cluster: Cluster) -> None:
    script = f"{LOCKED}; for top in /tmp $@; do flock -n $top echo $top 2>/dev/null; done"

    assert cluster.run(f"srun --mem=50 -N1 sh -c '{script}; true'") == "/tmp"


def complete(cluster: Cluster, folder: str, number: int) -> None:
    """Run an array of `number` jobs. Raises AssertionError if a job does not complete."""
    array = f"--array=1-{number} --mem=10 --output=/dev/null"
    job = cluster.submit(folder, "#!/bin/sh\ntrue", *array.split())
    left = f"squeue --noheader --array --jobs={job} --format=%i | wc -l"
    eventually("all jobs have ended", lambda: cluster.run(left) == "0", 180)
    states = f"sacct --noheader --allocations --array --format=State --jobs={job} | sort | uniq -c"
    becomes("the jobs' states", lambda: cluster.run(states).split(), [str(number), "COMPLETED"])


@pytest.mark.usefixtures("nothing_left")
def test_cgroups_of_jobs_are_removed_after_slurmd_is_killed(cluster: Cluster, folder: str) -> None:
    """Kill slurmd only while no job starts.

    If slurmd were killed during the prolog of a job, Slurm would wait forever for this prolog.
    """
    complete(cluster, folder, 250)
    long = cluster.submit(folder, "#!/bin/sh\nsleep 20", "--mem=10", "--nodelist=cpu-0")
    cluster.wait_for_job(long, "RUNNING")
    eventually("the job has cgroups", lambda: groups(cluster))

    cluster.in_pod("cpu-0", "slurmd", "sh", "-c", f"kill -KILL $({FIND_SLURMD})")

    complete(cluster, folder, 249)
    cluster.wait_for_job(long)


@pytest.mark.usefixtures("nothing_left")
def test_cgroups_of_steps_are_removed_with_their_jobs(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && sbatch --wait --mem=20 --array=1-10 --wrap 'srun true'")


@pytest.mark.usefixtures("nothing_left")
def test_cgroups_of_a_killed_slurmstepd_are_removed_with_the_job(
    cluster: Cluster, folder: str
) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=20", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")
    eventually("the job has cgroups", lambda: groups(cluster))

    cluster.in_pod("cpu-0", "slurmd", "pkill", "-KILL", "-f", rf"^slurmstepd: \[{job}\.batch\]")

    cluster.run(f"scancel {job}")
    cluster.wait_for_job(job, "CANCELLED")


@pytest.mark.usefixtures("nothing_left")
def test_cgroups_are_removed_after_a_slow_slurmstepd_ends(cluster: Cluster, folder: str) -> None:
    """On a busy node, slurmstepd may run for seconds after its last message to slurmd.

    The test adds a sleeping process to slurmstepd's cgroup, which has the same effect.
    """
    job = cluster.submit(folder, "#!/bin/sh\nsleep 2", "--mem=20", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")
    daemons = eventually(
        "slurmstepd has a cgroup", lambda: [path for path in groups(cluster) if DAEMONS in path]
    )
    group = daemons[0].partition(":")[2]

    join = f"sleep 10 >/dev/null 2>&1 & echo $! >{group}/cgroup.procs"
    cluster.in_pod("cpu-0", "slurmd", "sh", "-c", join)

    cluster.wait_for_job(job)


@pytest.mark.usefixtures("nothing_left")
def test_running_job_continues_when_slurmd_is_killed(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\ntouch begun; sleep 5; nproc"
    job = cluster.submit(folder, script, "--mem=20", "--nodelist=cpu-0")
    # Wait for the script: if slurmd is killed before it launches the script, the script never
    # starts.
    eventually("the script runs", lambda: cluster.run(f"ls {folder}/begun 2>/dev/null || true"))

    cluster.in_pod("cpu-0", "slurmd", "sh", "-c", f"kill -KILL $({FIND_SLURMD})")

    cluster.wait_for_job(job)
    assert cluster.run(f"cat {folder}/slurm-{job}.out") == "1"


@pytest.mark.usefixtures("nothing_left")
def test_suspended_job_pauses_and_resumes(cluster: Cluster, folder: str) -> None:
    count = "#!/bin/bash\nfor n in $(seq 1000); do echo $n; sleep 0.1; done"
    job = cluster.submit(folder, count, "--mem=20", "--nodelist=cpu-0")
    lines = f"cat {folder}/slurm-{job}.out 2>/dev/null | wc -l"
    eventually("the script writes its counter", lambda: int(cluster.run(lines)) > 3)

    cluster.as_user(0, 0, f"scontrol suspend {job}")
    cluster.wait_for_job(job, "SUSPENDED")
    stopped = cluster.run(f"sleep 0.3; {lines}")

    assert cluster.run(f"sleep 1; {lines}") == stopped
    python = ("env", "PYTHONPATH=/usr/lib/slurmstack", "python3", "-BSc", PROCESSES)
    processes = cluster.in_pod("cpu-0", "slurmd", *python).split("\n")
    assert any(DAEMON in line for line in processes)
    hanging = [line for line in processes if line and line.split()[5] != "-"]
    assert hanging == [], "the check stuck-processes would drain the node"
    cluster.as_user(0, 0, f"scontrol resume {job}")
    eventually("the script continues", lambda: int(cluster.run(lines)) > int(stopped) + 3)


@pytest.mark.usefixtures("nothing_left")
def test_pod_with_a_suspended_job_ends_in_time(cluster: Cluster, folder: str) -> None:
    """In cgroups of version 1, SIGKILL does not end the processes of a suspended (frozen) job.

    At the end, the test cancels the job, because slurmctld 24.11 does not notice that the job has
    ended (see docs/health.md, section Restarts).
    """
    options = ("--mem=20", "--nodelist=cpu-0")
    job = cluster.submit(folder, "#!/bin/sh\ntouch begun; sleep 600", *options)
    eventually("the script runs", lambda: cluster.run(f"ls {folder}/begun 2>/dev/null || true"))
    cluster.as_user(0, 0, f"scontrol suspend {job}")
    cluster.wait_for_job(job, "SUSPENDED")

    begin = time.monotonic()
    cluster.kubectl("delete", "pod", "cpu-0", "--grace-period=15", timeout=180)

    assert time.monotonic() - begin < 60
    cluster.run(f"scancel {job}")
    becomes("the state of cpu-0", lambda: cluster.nodes().get("cpu-0"), "idle", timeout=180)
