"""Jobs see and change only their own processes and files, and leave nothing on the node."""

from typing import Any

import pytest

from components import conventions as c
from tests.support.slurmctld import FIND_SLURMD
from tests.support.spank import NODE, Node
from tests.support.waiting import eventually

SIZES = {"tmp": "16MiB", "var_tmp": "16MiB", "shm": "16MiB"}
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
USUAL_DEVICES = {
    *("fd", "full", "null", "ptmx", "pts", "random", "shm"),
    *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
}
KEEPER = "slurmstepd"
EXTERNAL = "sleep"
"""Command name of the process in a job's external step."""


def processes(node: Node, *options: str, name: str = "researcher") -> list[str]:
    """Return the command names of the processes that a job sees."""
    listed = node.job("cat /proc/[0-9]*/comm", *options, name=name)
    return sorted(listed.splitlines())


def test_job_sees_only_its_processes_and_two_of_slurm(node: Node) -> None:
    assert processes(node) in (["bash", EXTERNAL, KEEPER], ["cat", EXTERNAL, KEEPER])


def test_slurm_runs_jail_programs_with_the_rights_of_the_job(node: Node) -> None:
    """With more rights, root in the jail would control every node."""
    node.submit("sleep 1000")
    look = "cat /proc/$(pgrep --full '^sleep 100000000$')/status 2>/dev/null || true"

    status = eventually("the job runs", lambda: node.root(look))

    fields = dict(line.split(None, 1) for line in status.splitlines() if line.split()[1:])
    assert fields["NoNewPrivs:"] == "1"
    assert int(fields["CapPrm:"], 16) == FEW


def test_job_sees_processes_of_its_steps_but_not_of_other_jobs(node: Node) -> None:
    job = node.submit("tail --follow /dev/null")
    eventually("the job runs", lambda: bool(node.root("pgrep --exact tail || true")))

    inside = processes(node, f"--jobid={job}", "--overlap")
    outside = processes(node, name="student")

    assert "tail" in inside
    assert "tail" not in outside


def test_job_cannot_signal_processes_of_the_node(node: Node) -> None:
    slurmd = node.root(FIND_SLURMD)

    assert "No such process" in node.job(f"kill -0 {slurmd} 2>&1 || true")


def test_simultaneous_steps_share_the_namespaces_of_the_job(
    node: Node,
) -> None:
    look = 'srun --overlap --ntasks=1 bash -c "readlink /proc/self/ns/mnt /proc/self/ns/pid"'
    script = f"for i in 1 2 3 4 5 6; do {look} & done; wait; {look}"
    job = node.submit(script, "--ntasks=6", "--mem-per-cpu=100")
    eventually("the steps have run", lambda: len(node.output(job).split()) == 14)

    assert len(set(node.output(job).split())) == 2, node.output(job)


def test_background_processes_end_with_the_job(node: Node) -> None:
    node.job("setsid sleep 1000 >/dev/null 2>&1 </dev/null & sleep 0.2; true")

    eventually("nothing is left", node.is_clean)


def test_cancelled_job_leaves_nothing_on_the_node(node: Node) -> None:
    job = node.submit('trap "" TERM; touch /tmp/x /dev/shm/x; srun sleep 1000; sleep 1000')
    eventually("the job runs", lambda: bool(node.root("pgrep --full ^sleep.1000 || true")))

    node.user(f"scancel {job}")

    eventually("nothing is left", node.is_clean)


@pytest.mark.parametrize("sizes", [{}, SIZES], ids=["on disk", "in memory"])
def test_steps_share_private_directories_but_jobs_do_not(node: Node, sizes: dict[str, str]) -> None:
    node.isolate(**sizes)
    files = " ".join(f"{folder}/mine" for folder in FOLDERS)
    job = node.submit(f"touch {files}; echo ready; sleep 1000")
    eventually("the job has written", lambda: "ready" in node.output(job))

    output = node.job(f"ls {files}", f"--jobid={job}", "--overlap").split()
    assert set(output) == set(files.split())
    assert node.job(f"ls {files} 2>/dev/null || true", name="student") == ""
    assert node.root(f"ls {files} 2>/dev/null || true") == "", (
        "the files are not in the node's own /tmp"
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_private_directory_enforces_its_size_limit(node: Node, folder: str) -> None:
    node.isolate(**SIZES)

    output = node.job(f"dd if=/dev/zero of={folder}/big bs=1M count=32 2>&1 || true")

    assert "No space left on device" in output
    assert node.job(f"dd if=/dev/zero of={folder}/big bs=1M count=12 2>/dev/null && echo fits")


def test_dev_contains_only_the_usual_devices(node: Node) -> None:
    assert set(node.job("ls /dev").split()) == USUAL_DEVICES
    assert node.job("echo gone >/dev/null; head --bytes=3 /dev/zero | wc --bytes") == "3"


def test_dev_contains_the_configured_devices(node: Node) -> None:
    node.isolate(devices=["conso*", "core"])

    assert set(node.job("ls /dev").split()) <= USUAL_DEVICES | {"console"}


def test_setuid_programs_work_only_if_permitted(node: Node) -> None:
    # setuid-id is a copy of `id` that belongs to root and has the set-user-ID bit.
    assert node.job("setuid-id --user") == "2000"

    node.isolate(no_new_privileges=False)

    assert node.job("setuid-id --user") == "0"


# Bits of these capabilities: chown, dac_override, fowner, fsetid, kill, setgid, setuid, sys_chroot.
FEW = 0b100_0000_0000_1111_1011


def test_job_of_root_keeps_only_few_capabilities(node: Node) -> None:
    look = "srun --quiet grep CapPrm /proc/self/status"

    assert int(node.root(look).split()[1], 16) == FEW

    node.isolate(no_new_privileges=False)

    assert int(node.root(look).split()[1], 16) & ~FEW


def test_root_in_a_job_cannot_write_proc_sys(node: Node) -> None:
    write = "(exec 3>>/proc/sys/kernel/core_pattern) 2>&1; mount -o remount,rw /proc/sys 2>&1"

    output = node.root(f"srun --quiet bash -c '{write}; true'")

    assert "Read-only file system" in output
    assert "permission denied" in output


def test_user_namespace_in_a_job_can_mount_proc(node: Node) -> None:
    """Container programs that run without root, such as Podman, mount /proc in this way."""
    look = "unshare --user --map-root-user --pid --fork --mount-proc cat /proc/1/comm"

    assert node.job(look) == "cat"


def test_job_has_a_private_terminal(node: Node) -> None:
    assert node.terminal("tty; ls /dev/pts").split() == ["/dev/pts/0", "0", "ptmx"]


def test_interactive_job_is_isolated(node: Node) -> None:
    output = node.user("salloc --quiet --ntasks=1 srun cat /proc/1/cmdline /proc/self/comm")

    assert "slurmstepd" in output
    assert "cat" in output


SECRETS = (
    *("/tmp/secret", "/tmp/munge/key", "/etc/auth-secret", "/run/munged", "/run/secrets"),
    *("/mnt/jail/etc", "/var/spool/slurmstack/slurm-jobs", "/var/spool/slurmd/cred_state"),
    *("/proc/1/root/etc", "/proc/1/environ"),
)


@pytest.mark.parametrize("path", SECRETS)
def test_job_cannot_read_files_of_the_node(node: Node, path: str) -> None:
    assert node.job(f"cat {path} 2>/dev/null || ls {path}/* 2>/dev/null || echo no") == "no"


def test_job_cannot_read_files_of_another_users_job(node: Node) -> None:
    job = node.submit("echo my secret; sleep 1000")
    eventually("the job runs", lambda: "secret" in node.output(job))

    files = node.job(
        "grep --recursive --files-with-matches my.secret /var/spool/slurmd /run /tmp /var/tmp "
        "/dev/shm 2>/dev/null || true",
        name="student",
    )

    assert files == ""


def test_end_of_a_job_removes_system_v_shared_memory(node: Node) -> None:
    assert "0x" in node.job("ipcmk --shmem 4096 >/dev/null; ipcs --shmems; ")
    assert "0x" not in node.job("ipcs --shmems")
    assert "0x" not in node.root("ipcs --shmems")


@pytest.mark.parametrize("isolation", [{}, {"tmp": "64MiB"}], ids=str)
def test_sbcast_writes_into_the_private_tmp_of_the_job(
    node: Node, isolation: dict[str, Any]
) -> None:
    node.isolate(**isolation)

    script = "hostname >/tmp/sent; sbcast /tmp/sent /tmp/got; cat /tmp/got; stat -c %U /tmp/got"
    assert node.job(script).split() == [NODE, "researcher"]
    assert "got" not in node.root("ls /tmp").split(), "the file is not in the node's own /tmp"


def test_srun_can_broadcast_its_program(node: Node) -> None:
    assert node.user("srun --quiet --bcast=/home/researcher/program /bin/hostname") == NODE
    assert node.root(f"stat -c %U {c.JAIL}/home/researcher/program") == "researcher"
    node.root(f"rm {c.JAIL}/home/researcher/program")


def test_job_sees_the_gpu_driver_of_the_node(node: Node) -> None:
    drivers = "/usr/lib/slurmstack/drivers"

    assert node.job(f"{drivers}/bin/nvidia-smi") == "a GPU"
    libraries = node.job(f"cd {drivers}/lib; wc --bytes libcuda.so.* libnvidia-ml.so.*").split()
    assert "libcuda.so.570.0" in libraries
    assert "0" not in libraries, "the libraries are not empty mount points"


def test_slurm_commands_in_a_job_come_from_the_node(node: Node) -> None:
    node.root("echo broken >/mnt/jail/usr/bin/scontrol")

    assert "is UP" in node.job("scontrol ping")
