"""Jobs in containers on a real cluster, from login to accounting."""

import json
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.imagesite import MAKE_BASE
from tests.support.metrics import series
from tests.support.waiting import becomes, eventually

SHOW_METRICS = ("python3", "-m", "agents.exporter", "--once")

SUM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d\\n", sum);
    MPI_Finalize();
    return 0;
}
"""
ADD_MPI = """
set -e
libraries=/usr/lib/x86_64-linux-gnu
cp --archive --parents $libraries/openmpi $libraries/pmix2 /etc/openmpi /usr/share/openmpi small
for file in sum $libraries/openmpi/lib/openmpi3/*.so $libraries/pmix2/lib/pmix/*.so; do
  ldd $file 2>/dev/null | grep -o '/lib[^ ]*' || true
done | sort -u | while read -r library; do
  cp --dereference $library small/usr/lib/x86_64-linux-gnu/
done
"""
"""Script that adds the libraries of a program with MPI to the directory `small`."""


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> Iterator[str]:
    """Directory with `small.sqsh`, a small distribution with MPI, and `sum`, an MPI program."""
    home = cluster.run("echo $HOME/images")
    cluster.run(f"mkdir -p {home}/small; cat >{home}/make <<'END'\n{MAKE_BASE}\nEND")
    cluster.run(f"cat >{home}/sum.c <<'END'\n{SUM}\nEND\ncd {home} && mpicc -o sum sum.c")
    cluster.run(f"cat >{home}/add-mpi <<'END'\n{ADD_MPI}\nEND")
    cluster.run(
        f"cd {home} && srun --quiet sh -c 'ROOT=/tmp/base bash make | tar -x -C small "
        "&& bash add-mpi && mksquashfs small small.sqsh -quiet -no-progress -noappend'"
    )
    yield home
    cluster.run(f"chmod -R u+rwX {home} ~/.cache/slurmstack; rm -rf {home} ~/.cache/slurmstack")


def test_step_on_two_nodes_runs_in_a_squashfs_image(cluster: Cluster, images: str) -> None:
    image = f"--container-image={images}/small.sqsh"

    output = cluster.run(f"srun --quiet --nodes=2 {image} grep ID= /etc/os-release")

    assert output.splitlines() == ["ID=small", "ID=small"]


def test_user_and_home_are_the_same_in_a_container(cluster: Cluster, images: str) -> None:
    command = "bash -c 'whoami; ls ~/images/small.sqsh'"

    output = cluster.run(f"srun --quiet --container-image={images}/small.sqsh {command}")

    assert output.splitlines() == ["researcher", f"{images}/small.sqsh"]


def test_mpi_works_across_nodes_in_a_container(cluster: Cluster, images: str) -> None:
    image = f"--container-image={images}/small.sqsh"

    output = cluster.run(f"srun --quiet --mpi=pmix --nodes=2 --ntasks=4 {image} {images}/sum")

    assert output.splitlines() == ["6"] * 4


def test_mpi_works_across_nodes_in_a_bundle(cluster: Cluster, images: str) -> None:
    shown = {"destination": "/home", "source": "/home", "type": "bind", "options": ["rbind"]}
    bundle = {"ociVersion": "1.0.2", "root": {"path": "small"}, "mounts": [shown]}
    cluster.run(f"cat >{images}/config.json <<'END'\n{json.dumps(bundle)}\nEND")

    output = cluster.run(
        f"srun --quiet --mpi=pmix --nodes=2 --ntasks=4 --container={images} {images}/sum"
    )

    assert output.splitlines() == ["6"] * 4


def test_container_has_the_cpus_of_the_job(cluster: Cluster, images: str) -> None:
    image = f"--container-image={images}/small.sqsh"

    assert cluster.run(f"srun --quiet --cpus-per-task=1 {image} nproc") == "1"


def test_container_step_over_its_memory_limit_ends(
    cluster: Cluster, images: str, folder: str
) -> None:
    fill = "head -c 300M /dev/zero | tail >/dev/null"
    script = f"#!/bin/bash\nsrun --container-image={images}/small.sqsh bash -c '{fill}'"

    job = cluster.submit(folder, script, "--mem=100M")

    state = f"sacct --noheader --parsable2 --jobs={job}.0 --format=State"
    becomes("the step's state", lambda: cluster.run(state), "OUT_OF_MEMORY", timeout=120)


def test_saved_container_can_run_again(cluster: Cluster, images: str) -> None:
    image = f"--container-image={images}/small.sqsh"
    saved = f"{images}/saved.sqsh"

    cluster.run(f"srun {image} --container-save={saved} bash -c 'echo made >/made'")

    assert cluster.run(f"srun --quiet --container-image={saved} cat /made") == "made"


def test_metrics_count_uses_of_cached_images(cluster: Cluster, images: str) -> None:
    cluster.run(f"srun --quiet --nodelist=cpu-0 --container-image={images}/small.sqsh true")

    def hits() -> float:
        text = cluster.in_pod("deploy/exporter", "exporter", *SHOW_METRICS)
        return series(text.encode()).get('slurmstack_image_hits_total{node="cpu-0"}', 0)

    # Wait for the next node check, which writes the counts into the node's record every minute.
    eventually("the metrics count a use of the cached image", lambda: hits() > 0, timeout=150)


def test_slurm_image_command_lists_images_on_the_login_node(cluster: Cluster, images: str) -> None:
    cluster.run(f"srun --quiet --container-image={images}/small.sqsh true")

    assert "MB" in cluster.run("slurm-image list")
