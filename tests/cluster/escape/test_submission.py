"""Options of a user's job, and files that a job leaves, have no effect outside the jail."""

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster.escape.victim import NODE, OTHER, Victim, in_shell
from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD, find_directories
from tests.support.waiting import eventually

OUTSIDE = "/usr/sbin/slurmd"
"""A file of the worker that does not exist in the jail."""


def on_worker(cluster: Cluster, script: str) -> str:
    return in_shell(cluster, NODE, "slurmd", script)


def slurmd_of(cluster: Cluster) -> int:
    return int(on_worker(cluster, FIND_SLURMD))


@pytest.fixture
def mark(cluster: Cluster) -> Iterator[str]:
    """An unused file name. The teardown removes files with this name."""
    name = f"escaped-{uuid.uuid4().hex[:8]}"
    yield name
    on_worker(cluster, f"rm -rf {' '.join(places(name))} /tmp/{name}* /var/tmp/{name}*")


def places(mark: str) -> list[str]:
    """Paths on the worker where a successful attempt would leave a file."""
    folders = (
        "/",
        "/etc",
        "/root",
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/var/spool/slurmd",
        "/usr/bin",
    )
    return [f"{root}{folder}/{mark}" for root in ("", "/mnt/jail") for folder in folders]


def left(cluster: Cluster, mark: str) -> str:
    """Return the files with this name in `places`, all of them outside jobs' own directories."""
    return on_worker(cluster, f"ls -d {' '.join(places(mark))} 2>/dev/null || true").strip()


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("kind", ["output", "error", "open-mode=append --output"])
def test_batch_output_is_written_only_where_the_user_may_write(
    cluster: Cluster, victim: Victim, folder: str, mark: str, kind: str
) -> None:
    """slurmstepd opens the output file as root, but in the jail and with an empty /proc."""
    slurmd = slurmd_of(cluster)
    cluster.run(f"ln -s /etc/{mark} {folder}/link; ln -s {victim.folder}/{mark} {folder}/theirs")
    targets = [
        f"/etc/{mark}",
        f"/usr/bin/{mark}",
        f"/root/{mark}",
        f"/var/spool/slurmd/{mark}",
        f"/mnt/jail/tmp/{mark}",
        f"/proc/1/root/tmp/{mark}",
        f"/proc/{slurmd}/root/tmp/{mark}",
        f"/proc/{slurmd}/cwd/{mark}",
        f"/proc/{slurmd}/fd/1",
        f"/proc/{victim.on_worker}/root/tmp/secret",
        "/proc/self/mem",
        f"{victim.folder}/secret",
        victim.public,
        f"{folder}/link",
        f"{folder}/theirs",
    ]
    submit = f"sbatch --parsable --nodelist={NODE} --mem=50 --{kind}={{}} --wrap 'id; pwd'"
    jobs = cluster.run("; ".join(submit.format(target) for target in targets)).split()

    assert len(jobs) == len(targets)
    for job in jobs:
        cluster.wait_for_job(int(job), "FAILED")
    assert left(cluster, mark) == ""
    assert victim.run(f"ls {victim.folder}; cat {victim.public}").count("uid=") == 0


@pytest.mark.parametrize("place", ["/proc/1/root", "/proc/{slurmd}/root", "/proc/{slurmd}/cwd"])
def test_job_does_not_start_outside_the_jail(cluster: Cluster, place: str) -> None:
    where = place.format(slurmd=slurmd_of(cluster))

    output = cluster.run(
        f"srun --nodelist={NODE} --chdir={where} sh -c 'pwd; test -e .{OUTSIDE} || echo inside'"
    )

    assert output.splitlines() == ["/tmp", "inside"]


@pytest.mark.parametrize("way", ["sbcast {file} {target}", "srun --bcast={target} {file}"])
def test_broadcast_file_arrives_only_in_the_job(
    cluster: Cluster, folder: str, mark: str, way: str
) -> None:
    cluster.run(f"printf '#!/bin/sh\\ntrue\\n' >{folder}/file; chmod +x {folder}/file")
    send = way.format(file=f"{folder}/file", target=f"/tmp/{mark}")

    output = cluster.ssh(
        f"salloc --quiet --nodelist={NODE} sh -c '{send}; srun cat /tmp/{mark}'", check=False
    )

    assert left(cluster, mark) == ""
    assert "true" in output.stdout, output.stderr


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize(
    "target",
    ["/etc/{mark}", "/var/spool/slurmd/{mark}", "/root/{mark}", "{others}/secret", "{public}"],
)
def test_broadcast_file_cannot_replace_a_file_of_another_user(
    cluster: Cluster, victim: Victim, folder: str, mark: str, target: str
) -> None:
    cluster.run(f"echo mine >{folder}/file")
    where = target.format(mark=mark, others=victim.folder, public=victim.public)

    output = cluster.ssh(
        f"salloc --quiet --nodelist={NODE} sbcast --force {folder}/file {where}", check=False
    )

    assert output.returncode != 0
    assert left(cluster, mark) == ""
    assert "mine" not in victim.run(f"cat {victim.folder}/secret {victim.public}")


def test_no_root_process_uses_a_users_environment(cluster: Cluster, folder: str, mark: str) -> None:
    """With LD_DEBUG, the dynamic linker writes a trace file that belongs to the program's user.

    A trace file of root would therefore show that a process of root used the user's variables.
    """
    cluster.run(f"printf 'id -u >>{folder}/shells\\n' >{folder}/shell")
    environment = {
        "LD_DEBUG": "files",
        "LD_DEBUG_OUTPUT": f"/tmp/{mark}",
        "LD_LIBRARY_PATH": folder,
        # Use paths that are valid on the worker, outside the jail, where root's processes run.
        "BASH_ENV": f"/mnt/jail{folder}/shell",
        "ENV": f"/mnt/jail{folder}/shell",
        "SPANK_LD_DEBUG": "files",
        "SPANK_LD_DEBUG_OUTPUT": f"/tmp/{mark}",
        "SLURM_SPANK_LD_DEBUG": "files",
        "SLURM_PROLOG_LD_DEBUG": "files",
        "SLURMD_LD_DEBUG_OUTPUT": f"/tmp/{mark}",
    }
    exported = " ".join(f"{name}={value}" for name, value in environment.items())
    script = f"srun true; stat -c %u /tmp/{mark}.* | sort -u >{folder}/owners"

    for command in (
        f"sbatch --wait --nodelist={NODE} --output=/dev/null --wrap '{script}'",
        f"srun --nodelist={NODE} true",
    ):
        cluster.run(f"env {exported} {command}; rm -f /tmp/{mark}*")

    assert cluster.run(f"cat {folder}/owners") == "2000", (
        "the user's own programs get the environment"
    )
    assert on_worker(cluster, f"find / -xdev -name '{mark}*' -user 0") == ""
    assert on_worker(cluster, f"ls /tmp /var/tmp | grep {mark} || true") == ""
    assert cluster.run(f"cat {folder}/shells 2>/dev/null || true") == ""


def test_step_prologs_run_as_the_user_in_the_jail(cluster: Cluster, folder: str) -> None:
    cluster.run(
        f"printf '#!/bin/sh\\necho $(id -u) $(test -e {OUTSIDE} || echo inside) >>{folder}/who\\n'"
        f" >{folder}/add; chmod +x {folder}/add"
    )
    names = ("prolog", "epilog", "task-prolog", "task-epilog")

    cluster.run(f"srun {' '.join(f'--{name}={folder}/add' for name in names)} true")

    assert cluster.run(f"cat {folder}/who").splitlines() == ["2000 inside"] * 4


@pytest.mark.parametrize("place", ["/etc", "/proc/{slurmd}/root/etc", "/proc/1/root/etc"])
def test_pmix_directory_is_created_only_where_the_user_may_write(
    cluster: Cluster, folder: str, place: str
) -> None:
    """slurmstepd runs as root and creates a directory for each step's PMIx server."""
    where = place.format(slurmd=slurmd_of(cluster))
    step = f"env SLURM_PMIX_TMPDIR={where} srun --mpi=pmix sh -c 'touch {folder}/ready; sleep 60'"
    job = cluster.submit(folder, f"#!/bin/sh\n{step}", f"--nodelist={NODE}")
    # Also accept the end of the job, because Slurm may refuse the step.
    eventually(
        "the step has begun, or the job is over",
        lambda: cluster.run(
            f"ls {folder}/ready 2>/dev/null; squeue -h -j {job} -o %T | grep -v -e RUN -e PEND",
            check=False,
        ),
    )

    made = on_worker(cluster, f"ls -d /etc/spmix*_{job}.* /mnt/jail/etc/spmix*_{job}.* 2>&1; true")

    cluster.run(f"scancel {job}")
    assert made.count("No such file") == 2, made


REGISTER = """
#include <pmix.h>
#include <stdio.h>
int main(int count, char **arguments)
{
    pmix_proc_t self;
    pmix_info_t wish, *answer;
    size_t n;

    if (count != 2 || PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS)
        return 1;
    PMIX_INFO_LOAD(&wish, PMIX_REGISTER_CLEANUP, arguments[1], PMIX_STRING);
    puts(PMIx_Error_string(PMIx_Job_control(NULL, 0, &wish, 1, &answer, &n)));
    return PMIx_Finalize(NULL, 0);
}
"""
"""Program that asks the PMIx server (slurmstepd) to remove files when the program has ended."""


@pytest.fixture
def register(cluster: Cluster, folder: str) -> str:
    """Path of the program REGISTER, which the user compiles."""
    cluster.run(f"cat >{folder}/register.c <<'END'\n{REGISTER}\nEND")
    headers = "$(dirname $(find /usr -name pmix.h | head -1))"
    cluster.run(f"cd {folder} && gcc register.c -o register -I{headers} -l:libpmix.so.2")
    return f"{folder}/register"


def test_pmix_cleanup_cannot_remove_files_as_root(
    cluster: Cluster, register: str, mark: str
) -> None:
    files = [f"/etc/{mark}", f"/mnt/jail/etc/{mark}"]
    on_worker(cluster, f"touch {' '.join(files)}")

    paths = f"/etc/{mark},/proc/1/root/etc/{mark},/proc/1/root/mnt/jail/etc/{mark}"
    output = cluster.run(f"srun --nodelist={NODE} --mpi=pmix {register} {paths}")

    assert output == "PMIX_SUCCESS", "the PMIx server accepted the request"
    eventually("the step is over", lambda: "CG" not in cluster.run("squeue --me --noheader"))
    assert set(left(cluster, mark).split()) == set(files)


def test_job_with_a_directory_as_input_cannot_see_the_node(cluster: Cluster, folder: str) -> None:
    look = "ls -d /proc/self/fd/0/proc/[0-9]* 2>/dev/null | wc -l; ls -d /proc/self/fd/0/etc"

    cluster.submit(
        folder, f"#!/bin/sh\n{look}", f"--nodelist={NODE}", "--wait", "--input=/", "--output=out"
    )

    assert cluster.run(f"cat {folder}/out").split() == ["0", "/proc/self/fd/0/etc"]


@pytest.mark.parametrize("target", ["/dev/null", "{folder}/fifo", "{folder}/others"])
def test_broadcast_does_not_change_the_owner_of_an_existing_target(
    cluster: Cluster, folder: str, target: str
) -> None:
    """slurmd writes the file as root, and makes the sender the file's owner."""
    there = target.format(folder=folder)
    outside = there if there == "/dev/null" else f"/mnt/jail{there}"
    cluster.run(f"echo mine >{folder}/file; chmod 600 {folder}/file; mkfifo {folder}/fifo")
    others = f"/mnt/jail{folder}/others"
    on_worker(cluster, f"touch {others}; chown {OTHER} {others}; chmod 666 {others}")
    look = f"stat -c '%u %a %F' {outside}"
    before = on_worker(cluster, look)

    send = f"timeout 60 sbcast --force {folder}/file {there}"
    output = cluster.ssh(f"salloc --quiet --nodelist={NODE} {send}", check=False)

    assert output.returncode not in (0, 124), output.stderr
    assert on_worker(cluster, look) == before


def test_container_bundle_cannot_mount_directories_of_the_node(
    cluster: Cluster, folder: str
) -> None:
    """Slurm would read config.json as root outside the jail."""
    mount = '{"destination": "/node", "source": "/var/spool/slurmstack", "options": ["bind"]}'
    bundle = f'{{"ociVersion": "1.0.0", "root": {{"path": "/"}}, "mounts": [{mount}]}}'
    cluster.run(f"echo '{bundle}' >{folder}/config.json")

    answer = cluster.ssh(f"srun --container={folder} ls /node", check=False)

    assert answer.returncode != 0
    assert answer.stdout == ""


def test_setuid_program_gains_no_privileges(cluster: Cluster, folder: str) -> None:
    """Even a set-user-ID program of root gives no privileges."""
    laid = f"/mnt/jail{folder}/id"
    on_worker(cluster, f"cp /mnt/jail/usr/bin/id {laid}; chown root:root {laid}; chmod 6755 {laid}")
    copy = f"cp {folder}/id /tmp/id; chmod 6755 /tmp/id; /tmp/id -u; /tmp/id -g"

    output = cluster.run(f"srun --nodelist={NODE} sh -c '{folder}/id -u; {folder}/id -g; {copy}'")

    assert output.split() == ["2000"] * 4
    on_worker(cluster, f"rm {laid}")


@pytest.mark.usefixtures("unharmed")
def test_job_cannot_see_another_jobs_temporary_files(cluster: Cluster, victim: Victim) -> None:
    look = "ls -a /tmp /var/tmp /dev/shm; cat /tmp/secret /var/tmp/secret /dev/shm/secret"

    output = cluster.ssh(f"srun --nodelist={NODE} sh -c '{look}' 2>&1; {look} 2>&1", check=False)

    assert output.stdout.count("No such file") == 6
    assert victim.secret not in output.stdout


def test_cleanup_does_not_follow_links_that_a_job_left(cluster: Cluster, folder: str) -> None:
    cluster.run(f"mkdir {folder}/kept; echo mine >{folder}/kept/file")
    leave = (
        "for p in /tmp /var/tmp /dev/shm; do cd $p; ln -s /var/spool/slurmd a; ln -s /etc b;"
        f" ln -s {folder}/kept c; ln -s .. d; ln -s / e; mkdir -p f/g/h; ln -s /usr f/g/h/i;"
        " mkfifo j; mkdir k; touch k/l; chmod 0 k f; ln -s /mnt/jail/home m; done; true"
    )
    spool = "cat /etc/passwd /var/spool/slurmd/conf-cache/slurm.conf /etc/slurmstack/isolation/*"
    before = on_worker(cluster, spool)

    job = cluster.submit(folder, f"#!/bin/sh\n{leave}", f"--nodelist={NODE}", "--wait")

    eventually(
        "the job's directories are gone", lambda: on_worker(cluster, find_directories(job)) == ""
    )
    assert on_worker(cluster, spool) == before
    assert cluster.run(f"cat {folder}/kept/file; ls -a {folder}/kept").split() == [
        *("mine", ".", "..", "file")
    ]


def test_end_of_a_job_frees_its_system_v_memory(cluster: Cluster) -> None:
    """If the memory stayed allocated, a short job could fill the node's memory permanently."""
    make = "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0"
    owned = "ipcs -m | awk '$3 == 2000 || $3 == \"researcher\"'"

    cluster.run(f"srun --nodelist={NODE} python3 -c '{make}'")

    try:
        eventually("no segment is left", lambda: on_worker(cluster, owned) == "", 10)
    finally:
        on_worker(cluster, f"{owned} | awk '{{ print $2 }}' | xargs -rn1 ipcrm -m")


def test_users_can_read_no_kubernetes_credential(cluster: Cluster, folder: str) -> None:
    look = (
        r"find / -xdev \( -path '*/serviceaccount/*' -o -name 'kubeconfig*' \) -print"
        " -o -path /home -prune; grep -c serviceaccount /proc/self/mountinfo; env | grep -c KUBE;"
        " true"
    )
    cluster.run(f"cat >{folder}/look <<'END'\n{look}\nEND")

    for where in ("", f"srun --nodelist={NODE} "):
        assert cluster.run(f"{where}sh {folder}/look 2>/dev/null").split() == ["0", "0"]


def test_attacker_and_victim_have_different_uids(cluster: Cluster) -> None:
    """These tests need two different users."""
    assert cluster.run("id -u games; id -u").split() == [str(OTHER), "2000"]
