"""Common software runs unchanged: MPI, Python environments, gdb, tmux, git, rsync."""

import filecmp
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.paths import ROOT
from tests.cluster.transparency.shown import NODES, PLACES, common_answer, everywhere, typed, write
from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually

MPI = """
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, sum, length;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s: %d\\n", rank, size, host, sum);
  MPI_Finalize();
  return 0;
}
"""
# This program prints the duration of MPI_Init on rank 0 when rank 1 starts late.
MPI_LATE = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct timespec begin, end;
  if (strcmp(getenv("SLURM_PROCID"), "1") == 0)
    sleep(2);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  MPI_Init(&argc, &argv);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (strcmp(getenv("SLURM_PROCID"), "0") == 0)
    printf("%.1f\\n", end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9);
  MPI_Finalize();
  return 0;
}
"""
# Accept both orders of the nodes, because Slurm orders nodes by their first registration.
RANKS = [
    [f"rank {rank} of 2 on {node}: 3" for rank, node in enumerate(nodes)]
    for nodes in (("cpu-0", "cpu-1"), ("cpu-1", "cpu-0"))
]
LOOP = """
#include <unistd.h>
volatile int answer = 42;
static void work(void) { for (;;) usleep(1000); }
int main(void) { work(); }
"""
SUM = "import numpy, socket; print(socket.gethostname(), numpy.arange(10).sum(), numpy.__file__)"


@pytest.fixture(scope="module")
def workshop(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home that the tests of this module share."""
    path = "/home/researcher/workshop"
    cluster.run(f"rm -rf {path}; mkdir {path}")
    yield path
    cluster.run(f"rm -rf {path}")


# --- Contents of the image ------------------------------------------------------------------------


def test_programs_in_the_documentation_are_installed(cluster: Cluster) -> None:
    text = (ROOT / "docs/researcher.md").read_text()
    section = text.partition("\n## Programs\n")[2].partition("\n## ")[0]
    # `module` is a function of the shell and `venv` a module of Python.
    names = {*re.findall(r"`([a-z+]+)`", section)} - {"module", "venv"}
    assert len(names) > 10

    answers = everywhere(cluster, f"for name in {' '.join(names)}; do command -v $name; done; true")

    assert {path.rpartition("/")[2] for path in common_answer(answers).split()} == names


def test_job_can_load_an_environment_module(cluster: Cluster, folder: str) -> None:
    cluster.run(f"mkdir --parents {folder}/modules/science")
    write(cluster, f"{folder}/modules/science/1.lua", 'setenv("SCIENCE", "yes")')
    script = f"module use {folder}/modules\nmodule load science/1\nsrun printenv SCIENCE"

    job = cluster.submit(folder, f"#!/bin/bash -l\n{script}", "--wait")

    assert cluster.run(f"cat {folder}/slurm-{job}.out") == "yes"


# --- MPI ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mpi_program(cluster: Cluster, workshop: str) -> str:
    """An MPI program, compiled on the login node as users do it."""
    write(cluster, f"{workshop}/ranks.c", MPI)
    cluster.run(f"cd {workshop} && mpicc -o ranks ranks.c")
    return f"{workshop}/ranks"


def test_srun_offers_pmix(cluster: Cluster) -> None:
    answer = cluster.ssh("srun --mpi=list 2>&1").stdout

    assert "pmix" in answer.split()


@pytest.mark.parametrize(
    "launch",
    ["srun --mpi=pmix --nodes=2", "srun --nodes=2", "salloc --quiet --nodes=2 mpirun"],
)
def test_mpi_program_runs_on_two_nodes(cluster: Cluster, mpi_program: str, launch: str) -> None:
    assert sorted(cluster.run(f"{launch} {mpi_program}").splitlines()) in RANKS


@pytest.mark.parametrize("launch", ["srun --mpi=pmix", "mpirun"])
def test_an_mpi_program_runs_in_a_batch_job(
    cluster: Cluster, folder: str, mpi_program: str, launch: str
) -> None:
    script = f"#!/bin/sh\n{launch} {mpi_program}"
    cluster.submit(folder, script, "--nodes=2", "--ntasks=2", "--wait", "--output=out")

    assert sorted(cluster.run(f"cat {folder}/out").splitlines()) in RANKS


def test_mpi_init_waits_for_all_ranks(cluster: Cluster, workshop: str) -> None:
    """If MPI_Init returned earlier, a rank could get a message too early, and would crash."""
    write(cluster, f"{workshop}/late.c", MPI_LATE)
    cluster.run(f"cd {workshop} && mpicc -o late late.c")

    assert float(cluster.run(f"srun --mpi=pmix --nodes=2 {workshop}/late")) > 1.5


def test_users_cannot_enable_direct_connections_of_pmix(cluster: Cluster, mpi_program: str) -> None:
    asked = "SLURM_PMIX_DIRECT_CONN=true SLURM_PMIX_FENCE=ring"

    output = cluster.run(f"{asked} srun --mpi=pmix --nodes=2 {mpi_program} 2>&1")

    assert "cannot be used with Slurm RPC's communication" in output


def test_failed_mpi_program_ends_on_all_nodes(cluster: Cluster, mpi_program: str) -> None:
    end = f"if [ $SLURM_PROCID = 1 ]; then exit 3; else {mpi_program}; fi"

    answer = cluster.ssh(f"srun --mpi=pmix --nodes=2 sh -c '{end}'", check=False, timeout=60)

    assert answer.returncode != 0


# --- Python ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheels(cluster: Cluster, workshop: str) -> str:
    """Copy numpy and tqdm from PyPI into the jail, because the cluster may lack Internet access."""
    here = ROOT / ".local/cache/wheels"
    version = cluster.run("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    platforms = ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64"]
    execute(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--dest", here),
            *("--only-binary=:all:", "--no-deps", "--python-version", version),
            *(f"--platform={platform}" for platform in [*platforms, "any"]),
            *("numpy", "tqdm"),
        ],
        timeout=300,
    )
    there = f"{workshop}/wheels"
    cluster.run(f"mkdir {there}")
    files = sorted(here.glob("*.whl"))
    execute(["scp", "-q", "-F", cluster.directory / "ssh_config", *files, f"login:{there}"])
    return there


@pytest.fixture(scope="module")
def environment(cluster: Cluster, workshop: str, wheels: str) -> str:
    """A virtual environment that was created on the login node."""
    path = f"{workshop}/venv"
    install = f"{path}/bin/pip install --quiet --no-index --find-links={wheels}"
    cluster.run(f"python3 -m venv {path} && {install} numpy", timeout=300)
    return path


def test_virtual_environment_of_login_works_on_both_nodes(
    cluster: Cluster, environment: str
) -> None:
    output = cluster.run(f"srun --nodes=2 {environment}/bin/python -c '{SUM}'")

    lines = sorted(line.split() for line in output.splitlines())
    assert [(node, total) for node, total, _ in lines] == [(node, "45") for node in NODES]
    assert all(where.startswith(environment) for *_, where in lines)


def test_package_that_a_job_installed_is_available_to_other_jobs(
    cluster: Cluster, folder: str, wheels: str
) -> None:
    script = f"""#!/bin/bash
python3 -m venv venv
source venv/bin/activate
pip install --quiet --no-index --find-links={wheels} tqdm"""
    cluster.submit(folder, script, "--nodelist=cpu-0", "--wait")

    output = cluster.run(
        f"source {folder}/venv/bin/activate; srun --nodelist=cpu-1 tqdm --version; which tqdm"
    )

    version, where = output.split()
    assert version[0].isdigit()
    assert where == f"{folder}/venv/bin/tqdm"


# --- Tools ----------------------------------------------------------------------------------------


def test_gdb_attaches_to_a_running_job(cluster: Cluster, folder: str) -> None:
    write(cluster, f"{folder}/loop.c", LOOP)
    cluster.run(f"cd {folder} && gcc -g -o loop loop.c")
    job = cluster.submit(folder, "#!/bin/sh\nexec ./loop", "--nodelist=cpu-0")
    cluster.wait_for_job(job, "RUNNING")

    debug = "gdb --batch --pid=$(pgrep loop) --eval-command=backtrace --eval-command='print answer'"
    output = cluster.run(f'srun --jobid={job} --overlap bash -c "{debug}"'.replace("$(", "\\$("))

    assert "in work ()" in output
    assert "$1 = 42" in output
    assert cluster.job_state(job) == "RUNNING"


def test_gdb_runs_a_program_in_a_job(cluster: Cluster, folder: str) -> None:
    write(cluster, f"{folder}/loop.c", LOOP)
    cluster.run(f"cd {folder} && gcc -g -o loop loop.c")

    output = cluster.run(f"srun gdb --batch -ex 'break work' -ex run -ex backtrace {folder}/loop")

    assert re.search(r"Breakpoint 1, .*work \(\)", output), output


def test_tmux_session_continues_after_the_ssh_session_ends(cluster: Cluster, folder: str) -> None:
    cluster.run(
        "tmux new-session -d -s work"
        f" && tmux send-keys -t work 'cd {folder} && srun hostname >out' Enter"
    )
    try:
        eventually(
            "the job in tmux has run",
            lambda: cluster.run(f"cat {folder}/out", check=False) in NODES,
        )
        assert "srun hostname" in cluster.run("tmux capture-pane -p -t work")
        assert "[detached" in typed(cluster, "", r"TERM=xterm tmux attach \; detach")
    finally:
        cluster.run("tmux kill-session -t work")


def test_commits_pushed_from_outside_are_visible_on_all_nodes(
    cluster: Cluster, folder: str, tmp_path: Path
) -> None:
    name = "-c user.name=Researcher -c user.email=researcher@example.org"
    cluster.run(
        f"git init --quiet --initial-branch=main {folder}/code && cd {folder}/code"
        f" && echo one >file && git add file && git {name} commit --quiet -m First"
    )
    ssh = f"ssh -F {cluster.directory / 'ssh_config'}"
    git = ["git", "-c", f"core.sshCommand={ssh}", *name.split()]
    execute([*git, "clone", "--quiet", f"login:{folder}/code", tmp_path / "code"])
    (tmp_path / "code/file").write_text("two\n")
    execute([*git, "-C", tmp_path / "code", "commit", "--quiet", "--all", "-m", "Second"])
    execute([*git, "-C", tmp_path / "code", "push", "--quiet", "origin", "main:next"])

    logs = everywhere(cluster, f"cd {folder}/code && git log --format=%s next")

    assert {place: output.split() for place, output in logs.items()} == {
        place: ["Second", "First"] for place in PLACES
    }


def test_rsync_copies_a_tree_to_the_cluster_and_back(
    cluster: Cluster, folder: str, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep/er").mkdir(parents=True)
    (tree / "deep/er/data").write_bytes(bytes(range(256)) * 64)
    (tree / "run").write_text("#!/bin/sh\necho $SLURM_PROCID >>ran\n")
    (tree / "run").chmod(0o755)
    (tree / "link").symlink_to("deep/er/data")
    rsync = ["rsync", "--archive", f"--rsh=ssh -F {cluster.directory / 'ssh_config'}"]

    execute([*rsync, f"{tree}/", f"login:{folder}/tree/"])
    cluster.run(f"cd {folder}/tree && srun ./run")
    execute([*rsync, f"login:{folder}/tree/", f"{tmp_path}/back/"])

    compared = filecmp.dircmp(tree, tmp_path / "back")
    assert compared.left_only == []
    assert compared.right_only == ["ran"]
    assert compared.diff_files == []
    assert (tmp_path / "back/link").readlink() == Path("deep/er/data")
    assert (tmp_path / "back/deep/er/data").read_bytes() == (tree / "deep/er/data").read_bytes()
    assert (tmp_path / "back/run").stat().st_mode & 0o777 == 0o755


def test_sftp_lists_and_uploads_files(cluster: Cluster, folder: str) -> None:
    config = str(cluster.directory / "ssh_config")
    batch = f"cd {folder}\nput {ROOT / 'LICENSE'}\nls -l\n"

    output = subprocess.run(
        ["sftp", "-q", "-b", "-", "-F", config, "login"],
        input=batch, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip

    assert "LICENSE" in output
    assert str((ROOT / "LICENSE").stat().st_size) in output
