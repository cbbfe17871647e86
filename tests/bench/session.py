"""Waiting times of users: login to a prompt, and unpacking files in the jail and outside."""

import statistics

from tests.bench.figures import Figures, say, seconds
from tests.bench.load import alternate
from tests.support.cluster import Cluster

LOGINS = 10
FILES = 20_000
NODE = "cpu-0"
FOLDER = "home/researcher/bench"
MAKE = f"""
set -e
mkdir -p /{FOLDER} && cd /{FOLDER}
mkdir tree
for d in $(seq 100); do
  mkdir tree/$d
  for f in $(seq {FILES // 100}); do echo $f >tree/$d/$f; done
done
tar cf tree.tar tree
rm -r tree
"""


def measure(figures: Figures, cluster: Cluster) -> None:
    say("logging in, and unpacking files")
    prompt = statistics.median(
        seconds(lambda: cluster.ssh("bash -lic true")) for _ in range(LOGINS)
    )
    figures.add("ssh login to a prompt", prompt, at_most=0.5)
    cluster.run(MAKE)
    try:
        took = alternate(
            lambda: int(cluster.run(f"srun --nodelist={NODE} sh -c '{_untar('')}'")) / 1e9,
            lambda: int(cluster.in_pod(NODE, "slurmd", "sh", "-c", _untar("/mnt/jail"))) / 1e9,
        )
    finally:
        cluster.run(f"rm -rf /{FOLDER}")
    ratio = statistics.median(inside / outside for inside, outside in took)
    figures.add(f"ratio of untar of {FILES} files, in a job to outside", ratio, at_most=1.05)


def _untar(root: str) -> str:
    """Return a command that unpacks the archive, prints the duration of unpacking in nanoseconds,
    and removes the files again."""
    return (
        f"cd {root}/{FOLDER} && begin=$(date +%s%N) && tar xf tree.tar && "
        "echo $(($(date +%s%N) - begin)); rm -r tree"
    )
