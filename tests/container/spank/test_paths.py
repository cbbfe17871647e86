"""Paths that users choose: slurmstepd opens jobs' files, and slurmd opens the target of sbcast."""

import pytest

from components import conventions as c
from tests.support.slurmctld import FIND_SLURMD
from tests.support.spank import Node
from tests.support.waiting import eventually

SPOOL = c.WORKER_SPOOL


def ended(node: Node, job: str) -> str:
    """Wait for the end of a batch job, and return its state."""
    show = f"scontrol show job {job}"

    def state() -> str:
        return node.controller.run(show).partition("JobState=")[2].split()[0]

    eventually("the job has ended", lambda: state() not in ("PENDING", "RUNNING", "COMPLETING"))
    return state()


@pytest.mark.parametrize("place", ["self", "thread-self", "self/task/..", "{slurmd}"])
def test_user_path_cannot_reach_slurmstepd_or_node_processes(node: Node, place: str) -> None:
    """slurmstepd has threads outside the jail, so the node's /proc would lead out of the jail."""
    process = place.format(slurmd=node.root(FIND_SLURMD))

    job = node.submit("cat", f"--input=/proc/{process}/status")

    assert ended(node, job) == "FAILED"
    assert "Name:" not in node.output(job)


@pytest.mark.parametrize("stream", ["input", "output", "error"])
def test_user_cannot_open_descriptors_of_slurmstepd(node: Node, stream: str) -> None:
    """slurmstepd opens a path with the pattern `%t`. srun itself opens any other path."""
    with pytest.raises(AssertionError, match="launch failed"):
        node.user(f"srun --quiet --{stream}=/proc/self/fd/%t true")


def test_step_that_writes_user_files_ends_cleanly(node: Node) -> None:
    node.user("srun --quiet --label --output=/home/researcher/out-%t --ntasks=2 hostname")

    assert node.user("cat /mnt/jail/home/researcher/out-*").split() == [
        "0:",
        "cpu-0",
        "1:",
        "cpu-0",
    ]
    node.root(f"rm {c.JAIL}/home/researcher/out-*")
    eventually("nothing is left", node.is_clean)


# --- Root ----------------------------------------------------------------------------------------

OUTSIDE = (
    *(f"/proc/1/root{path}" for path in ("/tmp", "/etc", SPOOL)),
    *("/proc/1/cwd", "/proc/1/fd/..", SPOOL, f"{SPOOL}/conf-cache"),
)
"""Paths that could lead to directories of the node."""


@pytest.mark.parametrize("folder", OUTSIDE)
def test_files_opened_for_root_are_in_the_jail(node: Node, folder: str) -> None:
    node.root(f"srun --quiet --output={folder}/opened-%t true || true")

    assert node.root("find / /var/spool/slurmd -xdev -name 'opened-*'") == ""
    node.root(f"rm -f {c.JAIL}/opened-* {c.JAIL}/etc/opened-*")


@pytest.mark.parametrize("what", ["fd/0", "maps", "exe", "environ"])
def test_root_cannot_open_files_of_process_1_of_the_job(node: Node, what: str) -> None:
    options = f"--input=/proc/1/{what} --output=/dev/null"

    job = node.root(f"sbatch --parsable {options} --wrap true")

    assert ended(node, job) == "FAILED"


def test_root_in_a_job_cannot_write_to_the_spool_directory(node: Node) -> None:
    output = node.root(f"srun --quiet bash -c 'touch {SPOOL}/x {SPOOL}/conf-cache/x 2>&1; true'")

    assert output.count("Read-only file system") == 2


def test_sbcast_of_root_cannot_replace_files_of_the_jobs_process_1(node: Node) -> None:
    send = "sbcast --force /etc/hostname /proc/1/fd/0 2>&1 || echo no"

    assert node.root(f"salloc --quiet bash -c '{send}'").splitlines()[-1] == "no"


def test_batch_script_of_root_is_removed_after_the_job(node: Node) -> None:
    job = node.root("sbatch --parsable --output=/dev/null --wrap true")

    assert ended(node, job) == "COMPLETED"
    eventually(
        "the script is removed", lambda: node.root(f"ls -d {SPOOL}/job* 2>/dev/null || true") == ""
    )


# --- MPI -----------------------------------------------------------------------------------------


def test_pmix_directory_belongs_to_root_and_step_directories_to_users(node: Node) -> None:
    look = "stat --format=%U:%a /tmp/.pmix /tmp/.pmix/*; mv /tmp/.pmix /tmp/mine 2>&1; true"

    output = node.job(look, "--mpi=pmix").splitlines()

    assert output[:2] == ["root:755", "researcher:700"]
    assert "Operation not permitted" in output[2]


def test_user_cannot_choose_the_pmix_directory(node: Node) -> None:
    env = "SLURM_PMIX_TMPDIR=/home/researcher PMIX_MCA_gds=shmem2"

    output = node.user(f"{env} srun --quiet --mpi=pmix env")

    assert "SLURM_PMIX_TMPDIR=/tmp/.pmix" in output
    assert "PMIX_MCA_gds=hash" in output


# --- Ports and descriptors of slurmstepd ----------------------------------------------------------

ROOTS_PORTS = 'grep -hE "^ +[0-9]+:( [^ ]+){2} 0A( [^ ]+){3} +0 " /proc/net/tcp /proc/net/tcp6'
"""Command that prints the ports at which programs of root listen."""


def reachable(lines: str) -> set[str]:
    """Return the addresses and ports that other machines can reach."""
    found = {line.split()[1] for line in lines.splitlines()}
    return {address for address in found if not address.startswith("0100007F")}


@pytest.mark.parametrize("mpi", ["pmix", "none"])
def test_step_opens_no_port_to_others_and_inherits_no_descriptor(node: Node, mpi: str) -> None:
    """An open port would be dangerous for slurmstepd.

    slurmstepd trusts all senders, and uses numbers in their messages as array indexes.
    """
    before = reachable(node.root(ROOTS_PORTS))
    assert before

    output = node.user(f"srun --quiet --mpi={mpi} sh -c '{ROOTS_PORTS}; echo; ls /proc/self/fd'")

    during, _, descriptors = output.partition("\n\n")
    assert descriptors.split() == ["0", "1", "2", "3"]
    assert reachable(during) == before
