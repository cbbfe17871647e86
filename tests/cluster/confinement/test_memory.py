"""A job that takes more memory than it requested ends, and harms nobody else."""

import pytest

from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD
from tests.support.waiting import becomes, eventually

TAKE = "head -c {mib}M /dev/zero | tail | wc -c"
"""Holds that much memory at once: tail keeps the last line, which never ends."""
HOLD_AND_SPIN = (
    "python3 -c 'import time; held = bytearray({mib} << 20)\n"
    "while time.process_time() < {seconds}: pass'"
)


def started(cluster: Cluster) -> str:
    """Number and start of slurmd's process on a node."""
    return cluster.in_pod(
        "cpu-0", "slurmd", "sh", "-c", f"cut -d' ' -f1,22 /proc/$({FIND_SLURMD})/stat"
    )


def state(cluster: Cluster, job: int | str) -> str:
    return cluster.run(f"sacct --noheader --parsable2 --allocations --format=State --jobs={job}")


def test_a_job_over_its_memory_is_out_of_memory_and_neighbours_live_on(
    cluster: Cluster, folder: str
) -> None:
    before = started(cluster)
    neighbour = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(neighbour, "RUNNING")
    script = f"#!/bin/sh\n{TAKE.format(mib=600)}"

    job = cluster.submit(folder, script, "--mem=50", "--nodelist=cpu-0")

    cluster.wait_for_job(job, "OUT_OF_MEMORY")
    becomes("its state on record", lambda: state(cluster, job), "OUT_OF_MEMORY")
    assert cluster.job_state(neighbour) == "RUNNING"
    assert started(cluster) == before


def test_a_job_within_its_memory_completes(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, f"#!/bin/sh\n{TAKE.format(mib=100)}", "--mem=300", "--wait")

    assert state(cluster, job) == "COMPLETED"


def test_memory_in_dev_shm_counts(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\nhead -c 200M /dev/zero >/dev/shm/file"

    job = cluster.submit(folder, script, "--mem=50")

    cluster.wait_for_job(job, "OUT_OF_MEMORY")


def test_a_step_over_its_memory_ends_and_its_job_goes_on(cluster: Cluster, folder: str) -> None:
    step = f"srun --mem=50 sh -c '{TAKE.format(mib=300)}'"

    job = cluster.submit(
        folder, f"#!/bin/sh\n{step} || echo ended\nsleep 1; echo on", "--mem=400", "--wait"
    )

    said = cluster.run(f"cat {folder}/slurm-{job}.out").splitlines()
    assert said[-2:] == ["ended", "on"]


@pytest.mark.parametrize("way", ["salloc", "array", "het"])
def test_however_a_job_is_started_its_memory_is_bounded(
    cluster: Cluster, folder: str, way: str
) -> None:
    take = TAKE.format(mib=300)
    commands = {
        "salloc": f"salloc --job-name={way} --mem=50 srun sh -c '{take}'",
        "array": f"sbatch --job-name={way} --wait --array=0-1 --mem=50 --wrap '{take}'",
        "het": f"srun --job-name={way} --mem=50 -n1 : --mem=50 -n1 sh -c '{take}'",
    }

    cluster.ssh(f"cd {folder} && {commands[way]}", check=False)

    # The step of the one, the jobs of the others.
    states = f"sacct --noheader --parsable2 --format=State --name={way} --starttime=now-1hour"
    eventually("it is on record", lambda: "OUT_OF_MEMORY" in cluster.run(states).split())


def test_an_overlapping_step_is_bounded_by_its_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")

    said = cluster.ssh(
        f"srun --jobid={job} --overlap sh -c '{TAKE.format(mib=300)}'", check=False
    ).stderr

    assert "Out Of Memory" in said or "oom" in said.lower()
    assert cluster.job_state(job) == "RUNNING"


def test_an_ssh_session_is_bounded_by_its_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--mem=50", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")

    take = f"echo there; {TAKE.format(mib=300)}"
    said = cluster.ssh(f"ssh -o BatchMode=yes cpu-0 '{take}'", check=False).stdout.split()

    # The kernel ends tail; what comes behind it in the pipe has nothing to count.
    assert said in (["there"], ["there", "0"])
    assert cluster.job_state(job) == "RUNNING"


def test_what_a_job_has_used_is_on_record(cluster: Cluster, folder: str) -> None:
    """Within a tenth of what the program takes; Slurm writes down whole seconds."""
    script = f"#!/bin/sh\n{HOLD_AND_SPIN.format(mib=200, seconds=12)}"

    job = cluster.submit(folder, script, "--mem=400", "--acctg-freq=1", "--wait")

    used = f"sacct --noheader --parsable2 --noconvert --format=MaxRSS,AveCPU --jobs={job}.batch"
    eventually("it is on record", lambda: cluster.run(used).strip("|"))
    memory, time = cluster.run(used).split("|")
    hours, minutes, seconds = map(int, time.split(":"))
    assert 200 <= int(memory) / 2**20 <= 220
    assert 11 <= hours * 3600 + minutes * 60 + seconds <= 13
