"""What a job can see and do, and what is left of it."""

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
"""What Slurm runs in a job's external step."""


def processes(node: Node, *options: str, name: str = "researcher") -> list[str]:
    """Commands of the processes that a job sees."""
    listed = node.job("cat /proc/[0-9]*/comm", *options, name=name)
    return sorted(listed.splitlines())


def test_a_job_sees_no_process_but_its_own_and_two_of_slurms(node: Node) -> None:
    assert processes(node) in (["bash", EXTERNAL, KEEPER], ["cat", EXTERNAL, KEEPER])


def test_what_slurm_runs_of_the_jail_has_the_rights_of_the_job(node: Node) -> None:
    """Otherwise root in the jail would be root of every node."""
    node.submit("sleep 1000")
    look = "cat /proc/$(pgrep --full '^sleep 100000000$')/status 2>/dev/null || true"

    status = eventually("it runs", lambda: node.root(look))

    fields = dict(line.split(None, 1) for line in status.splitlines() if line.split()[1:])
    assert fields["NoNewPrivs:"] == "1"
    assert int(fields["CapPrm:"], 16) == FEW


def test_the_steps_of_a_job_see_each_other_and_no_other_job_does(node: Node) -> None:
    job = node.submit("tail --follow /dev/null")
    eventually("it runs", lambda: bool(node.root("pgrep --exact tail || true")))

    inside = processes(node, f"--jobid={job}", "--overlap")
    outside = processes(node, name="student")

    assert "tail" in inside
    assert "tail" not in outside


def test_a_job_cannot_signal_what_is_not_its_own(node: Node) -> None:
    slurmd = node.root(FIND_SLURMD)

    assert "No such process" in node.job(f"kill -0 {slurmd} 2>&1 || true")


def test_each_step_of_a_job_is_in_the_same_place_even_those_that_start_together(
    node: Node,
) -> None:
    look = 'srun --overlap --ntasks=1 bash -c "readlink /proc/self/ns/mnt /proc/self/ns/pid"'
    script = f"for i in 1 2 3 4 5 6; do {look} & done; wait; {look}"
    job = node.submit(script, "--ntasks=6", "--mem-per-cpu=100")
    eventually("it has run", lambda: len(node.output(job).split()) == 14)

    assert len(set(node.output(job).split())) == 2, node.output(job)


def test_what_a_job_leaves_behind_in_the_background_ends_with_it(node: Node) -> None:
    node.job("setsid sleep 1000 >/dev/null 2>&1 </dev/null & sleep 0.2; true")

    eventually("nothing is left", node.is_clean)


def test_a_job_that_is_cancelled_leaves_nothing(node: Node) -> None:
    job = node.submit('trap "" TERM; touch /tmp/x /dev/shm/x; srun sleep 1000; sleep 1000')
    eventually("it runs", lambda: bool(node.root("pgrep --full ^sleep.1000 || true")))

    node.user(f"scancel {job}")

    eventually("nothing is left", node.is_clean)


@pytest.mark.parametrize("sizes", [{}, SIZES], ids=["on disk", "in memory"])
def test_steps_share_a_jobs_private_directories_and_another_job_has_none_of_it(
    node: Node, sizes: dict[str, str]
) -> None:
    node.isolate(**sizes)
    files = " ".join(f"{folder}/mine" for folder in FOLDERS)
    job = node.submit(f"touch {files}; echo ready; sleep 1000")
    eventually("it has written", lambda: "ready" in node.output(job))

    seen = node.job(f"ls {files}", f"--jobid={job}", "--overlap").split()
    assert set(seen) == set(files.split())
    assert node.job(f"ls {files} 2>/dev/null || true", name="student") == ""
    assert node.root(f"ls {files} 2>/dev/null || true") == "", "nor has the node"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_private_directory_holds_no_more_than_its_size(node: Node, folder: str) -> None:
    node.isolate(**SIZES)

    told = node.job(f"dd if=/dev/zero of={folder}/big bs=1M count=32 2>&1 || true")

    assert "No space left on device" in told
    assert node.job(f"dd if=/dev/zero of={folder}/big bs=1M count=12 2>/dev/null && echo fits")


def test_dev_holds_what_every_program_needs_and_no_more(node: Node) -> None:
    assert set(node.job("ls /dev").split()) == USUAL_DEVICES
    assert node.job("echo gone >/dev/null; head --bytes=3 /dev/zero | wc --bytes") == "3"


def test_devices_that_are_named_are_there(node: Node) -> None:
    node.isolate(devices=["conso*", "core"])

    assert set(node.job("ls /dev").split()) <= USUAL_DEVICES | {"console"}


def test_set_user_id_programs_are_without_effect_unless_they_are_allowed(node: Node) -> None:
    # A copy of `id` that belongs to root and bears the bit.
    assert node.job("setuid-id --user") == "2000"

    node.isolate(no_new_privileges=False)

    assert node.job("setuid-id --user") == "0"


# Capabilities by their bits: chown, dac_override, fowner, fsetid, kill, setgid, setuid, sys_chroot.
FEW = 0b100_0000_0000_1111_1011


def test_roots_job_keeps_the_capabilities_that_rule_files_and_no_others(node: Node) -> None:
    look = "srun --quiet grep CapPrm /proc/self/status"

    assert int(node.root(look).split()[1], 16) == FEW

    node.isolate(no_new_privileges=False)

    assert int(node.root(look).split()[1], 16) & ~FEW


def test_root_in_a_job_cannot_write_what_is_the_machines_in_proc(node: Node) -> None:
    write = "(exec 3>>/proc/sys/kernel/core_pattern) 2>&1; mount -o remount,rw /proc/sys 2>&1"

    said = node.root(f"srun --quiet bash -c '{write}; true'")

    assert "Read-only file system" in said
    assert "permission denied" in said


def test_a_user_namespace_in_a_job_can_have_a_proc_of_its_own(node: Node) -> None:
    """As rootless containers need."""
    look = "unshare --user --map-root-user --pid --fork --mount-proc cat /proc/1/comm"

    assert node.job(look) == "cat"


def test_a_job_has_a_terminal_of_its_own(node: Node) -> None:
    assert node.terminal("tty; ls /dev/pts").split() == ["/dev/pts/0", "0", "ptmx"]


def test_an_interactive_job_is_as_isolated_as_any(node: Node) -> None:
    seen = node.user("salloc --quiet --ntasks=1 srun cat /proc/1/cmdline /proc/self/comm")

    assert "slurmstepd" in seen
    assert "cat" in seen


SECRETS = (
    *("/tmp/secret", "/tmp/munge/key", "/etc/auth-secret", "/run/munged", "/run/secrets"),
    *("/mnt/jail/etc", "/var/spool/slurmstack/slurm-jobs", "/var/spool/slurmd/cred_state"),
    *("/proc/1/root/etc", "/proc/1/environ"),
)


@pytest.mark.parametrize("path", SECRETS)
def test_what_belongs_to_the_node_is_out_of_reach(node: Node, path: str) -> None:
    assert node.job(f"cat {path} 2>/dev/null || ls {path}/* 2>/dev/null || echo no") == "no"


def test_no_file_of_another_users_job_can_be_read(node: Node) -> None:
    job = node.submit("echo my secret; sleep 1000")
    eventually("it runs", lambda: "secret" in node.output(job))

    found = node.job(
        "grep --recursive --files-with-matches my.secret /var/spool/slurmd /run /tmp /var/tmp "
        "/dev/shm 2>/dev/null || true",
        name="student",
    )

    assert found == ""


def test_what_a_job_keeps_in_system_v_memory_is_gone_after_it(node: Node) -> None:
    assert "0x" in node.job("ipcmk --shmem 4096 >/dev/null; ipcs --shmems; ")
    assert "0x" not in node.job("ipcs --shmems")
    assert "0x" not in node.root("ipcs --shmems")


@pytest.mark.parametrize("isolation", [{}, {"tmp": "64MiB"}], ids=str)
def test_sbcast_brings_a_file_to_where_the_job_looks_for_it(
    node: Node, isolation: dict[str, Any]
) -> None:
    node.isolate(**isolation)

    script = "hostname >/tmp/sent; sbcast /tmp/sent /tmp/got; cat /tmp/got; stat -c %U /tmp/got"
    assert node.job(script).split() == [NODE, "researcher"]
    assert "got" not in node.root("ls /tmp").split(), "it is on the node itself"


def test_srun_brings_the_program_that_it_starts(node: Node) -> None:
    assert node.user("srun --quiet --bcast=/home/researcher/program /bin/hostname") == NODE
    assert node.root(f"stat -c %U {c.JAIL}/home/researcher/program") == "researcher"
    node.root(f"rm {c.JAIL}/home/researcher/program")


def test_a_job_sees_the_driver_of_the_nodes_gpu(node: Node) -> None:
    drivers = "/usr/lib/slurmstack/drivers"

    assert node.job(f"{drivers}/bin/nvidia-smi") == "a GPU"
    libraries = node.job(f"cd {drivers}/lib; wc --bytes libcuda.so.* libnvidia-ml.so.*").split()
    assert "libcuda.so.570.0" in libraries
    assert "0" not in libraries, "they are the driver's files, not the places for them"


def test_slurms_commands_in_a_job_are_the_nodes_own(node: Node) -> None:
    node.root("echo broken >/mnt/jail/usr/bin/scontrol")

    assert "is UP" in node.job("scontrol ping")
