"""Measure how long a set of many small files takes, compared with restic alone.

Both read the same files, which are in the page cache, and write to a new store on the same volume.
"""

import statistics
import time
from collections.abc import Callable

from components import conventions as c
from tests.bench.figures import Figures, say
from tests.support.backups import FOLDERS, PASSWORD, STORE, Box, box
from tests.support.containers import containers

FILES = 200_000
CHANGED = FILES // 100
ROUNDS = 3
JAIL = FOLDERS["jail"]
MAKE = f"""python3 - <<'END'
import os
for folder in range({FILES // 1000}):
    os.makedirs(f"{JAIL}/home/{{folder}}")
    for file in range(1000):
        with open(f"{JAIL}/home/{{folder}}/{{file}}", "wb") as opened:
            opened.write(os.urandom(4096))
END"""
CHANGE = f"""python3 - <<'END'
import os
for folder in range({FILES // 1000}):
    for file in range({CHANGED * 1000 // FILES}):
        with open(f"{JAIL}/home/{{folder}}/{{file}}", "wb") as opened:
            opened.write(os.urandom(4096))
END"""
ALONE = (
    f"export RESTIC_PASSWORD={PASSWORD}; rm -rf {STORE}/*;"
    f" restic --quiet --no-cache -r {STORE}/alone init &&"
    f" restic --quiet --no-cache -r {STORE}/alone backup {JAIL}"
)


def measure(figures: Figures) -> None:
    say(f"backup: sets of {FILES:,} files")
    alone, first, next_ = [], [], []
    with containers("slurmstack-bench") as start:
        made = box(start)
        made.shell(MAKE)
        for _ in range(ROUNDS):
            alone.append(seconds(lambda: made.shell(ALONE)))
            made.shell(f"rm -rf {STORE}/*")
            first.append(seconds(lambda: run(made, "first")))
            made.shell(CHANGE)
            next_.append(seconds(lambda: run(made, "second")))
    figures.add(f"restic alone, {FILES:,} files, in s", statistics.median(alone))
    ratio = statistics.median(first) / statistics.median(alone)
    figures.add("first set, ratio to restic alone", ratio, at_most=1.5)
    ratio = statistics.median(next_) / statistics.median(first)
    figures.add("set after 1 % changed, ratio to the first set", ratio, at_most=0.1)


def run(made: Box, identity: str) -> str:
    code, output = made.run(f"set-files jail={c.JAIL}", SET=identity)
    assert code == 0, output
    return output


def seconds(work: Callable[[], str]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
