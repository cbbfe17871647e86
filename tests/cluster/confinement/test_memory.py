"""A job that exceeds its memory limit ends, and other jobs continue."""

import pytest

from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD
from tests.support.waiting import becomes, eventually

TAKE = "head -c {mib}M /dev/zero | tail | wc -c"
"""Command that needs `mib` MiB of memory: tail stores the last line, and the input is one line."""
HOLD_AND_SPIN = (
    "python3 -c 'import time; held = bytearray({mib} << 20)\n"
    "while time.process_time() < {seconds}: pass'"
)


def started(cluster: Cluster) -> str:
    """Return process id and start time of slurmd on a node."""
    return cluster.in_pod(
        "cpu-0", "slurmd", "sh", "-c", f"cut -d' ' -f1,22 /proc/$({FIND_SLURMD})/stat"
    )


def state(cluster: Cluster, job: int | str) -> str:
    return cluster.run(f"sacct --noheader --parsable2 --allocations --format=State --jobs={job}")


def test_job_over_its_memory_limit_ends_and_other_jobs_continue(
    cluster: Cluster, folder: str
) -> None:
    before = started(cluster)
    neighbour = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(neighbour, "RUNNING")
    script = f"#!/bin/sh\n{TAKE.format(mib=600)}"

    job = cluster.submit(folder, script, "--mem=50", "--nodelist=cpu-0")

    cluster.wait_for_job(job, "OUT_OF_MEMORY")
    becomes("the job's state in sacct", lambda: state(cluster, job), "OUT_OF_MEMORY")
    assert cluster.job_state(neighbour) == "RUNNING"
    assert started(cluster) == before


def test_job_within_its_memory_limit_completes(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, f"#!/bin/sh\n{TAKE.format(mib=100)}", "--mem=300", "--wait")

    assert state(cluster, job) == "COMPLETED"


def test_job_without_memory_request_gets_the_default_of_its_partition(
    cluster: Cluster, folder: str
) -> None:
    shown = cluster.run("scontrol --oneliner show partition main")
    default = int(dict(word.split("=", 1) for word in shown.split())["DefMemPerCPU"])

    within = f"#!/bin/sh\n{TAKE.format(mib=default // 2)}"
    job = cluster.submit(folder, within, "--ntasks=1", "--wait")

    allocated = f"sacct --noheader --parsable2 -X --format=AllocTRES --jobs={job}"
    assert f"mem={default}M" in cluster.run(allocated).split(",")
    assert state(cluster, job) == "COMPLETED"
    over = cluster.submit(folder, f"#!/bin/sh\n{TAKE.format(mib=default + 200)}", "--ntasks=1")
    cluster.wait_for_job(over, "OUT_OF_MEMORY")


def test_large_files_in_dev_shm_exceed_the_jobs_memory_limit(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\nhead -c 200M /dev/zero >/dev/shm/file"

    job = cluster.submit(folder, script, "--mem=50")

    cluster.wait_for_job(job, "OUT_OF_MEMORY")


def test_job_continues_after_a_step_exceeds_its_memory_limit(cluster: Cluster, folder: str) -> None:
    step = f"srun --mem=50 sh -c '{TAKE.format(mib=300)}'"

    job = cluster.submit(
        folder, f"#!/bin/sh\n{step} || echo ended\nsleep 1; echo on", "--mem=400", "--wait"
    )

    output = cluster.run(f"cat {folder}/slurm-{job}.out").splitlines()
    assert output[-2:] == ["ended", "on"]


@pytest.mark.parametrize("way", ["salloc", "array", "het"])
def test_memory_limit_applies_to_salloc_arrays_and_heterogeneous_jobs(
    cluster: Cluster, folder: str, way: str
) -> None:
    take = TAKE.format(mib=300)
    commands = {
        "salloc": f"salloc --job-name={way} --mem=50 srun sh -c '{take}'",
        "array": f"sbatch --job-name={way} --wait --array=0-1 --mem=50 --wrap '{take}'",
        "het": f"srun --job-name={way} --mem=50 -n1 : --mem=50 -n1 sh -c '{take}'",
    }

    cluster.ssh(f"cd {folder} && {commands[way]}", check=False)

    # With salloc, Slurm records the state OUT_OF_MEMORY for the step. Otherwise, Slurm records it
    # for the job.
    states = f"sacct --noheader --parsable2 --format=State --name={way} --starttime=now-1hour"
    eventually("sacct shows OUT_OF_MEMORY", lambda: "OUT_OF_MEMORY" in cluster.run(states).split())


def test_overlapping_step_cannot_exceed_the_memory_limit_of_its_job(
    cluster: Cluster, folder: str
) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")

    output = cluster.ssh(
        f"srun --jobid={job} --overlap sh -c '{TAKE.format(mib=300)}'", check=False
    ).stderr

    assert "Out Of Memory" in output or "oom" in output.lower()
    assert cluster.job_state(job) == "RUNNING"


def test_ssh_session_cannot_exceed_the_memory_limit_of_the_job(
    cluster: Cluster, folder: str
) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")

    take = f"echo there; {TAKE.format(mib=300)}"
    output = cluster.ssh(f"ssh -o BatchMode=yes cpu-0 '{take}'", check=False).stdout.split()

    # The kernel kills tail, so wc, the next command in the pipe, counts nothing or also ends.
    assert output in (["there"], ["there", "0"])
    assert cluster.job_state(job) == "RUNNING"


def test_accounting_records_memory_and_cpu_time(cluster: Cluster, folder: str) -> None:
    """The recorded memory is at most 10 % too high, and the CPU time is at most 1 second wrong.

    Slurm records the CPU time only in whole seconds.
    """
    script = f"#!/bin/sh\n{HOLD_AND_SPIN.format(mib=200, seconds=12)}"

    job = cluster.submit(folder, script, "--mem=400", "--acctg-freq=1", "--wait")

    used = f"sacct --noheader --parsable2 --noconvert --format=MaxRSS,AveCPU --jobs={job}.batch"
    eventually("sacct shows the usage", lambda: cluster.run(used).strip("|"))
    memory, time = cluster.run(used).split("|")
    hours, minutes, seconds = map(int, time.split(":"))
    assert 200 <= int(memory) / 2**20 <= 220
    assert 11 <= hours * 3600 + minutes * 60 + seconds <= 13
