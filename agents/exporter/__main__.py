"""`python3 -m agents.exporter [--once]`: Slurm's state as metrics, on http://:9341/metrics.

It reads Slurm once in each interval, however often it is scraped, and goes on where Slurm does not
answer. With --once it reads everything once, prints the metrics, and ends with 1 where one read
failed.

It takes its way from the environment: INTERVAL (seconds), TOP (accounts, and users, with series of
their own), JOBS (pairs of a job that runs and a node), JAIL (where the jail is mounted; without it,
nobody looks), VOLUMES (where volumes in it are mounted besides, each at a folder of its name), and
PORT.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from agents.exporter.exporter import Exporter
from agents.exporter.server import Server
from agents.exporter.sources import Jail, Slurm

PORT = 9341
"""Where Prometheus' wiki of default ports has Slurm."""
INTERVAL = 30.0
TOP = 50
JOBS = 1000
LONGEST = 5
"""Times the interval from one round to the next; it is two where Slurm does not answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="agents.exporter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--once", action="store_true", help="read once, print, and end")
    options = parser.parse_args(arguments)
    interval = float(os.environ.get("INTERVAL", INTERVAL))
    slurm = Slurm(int(os.environ.get("TOP", TOP)), int(os.environ.get("JOBS", JOBS)))
    jail = [Jail(paths).source()] if (paths := _paths()) else []
    if options.once:
        return _once(Exporter([*jail, *slurm.each_time(), *slurm.in_turn()], [], interval))
    # The jail first: a Slurm that does not answer takes all the time that there is.
    exporter = Exporter([*jail, *slurm.each_time()], slurm.in_turn(), interval)
    _again_and_again(exporter, int(os.environ.get("PORT", PORT)))
    return 0


def _paths() -> dict[str, str]:
    """Where the jail and volumes in it are, by their names; not below each other, as of one that
    hangs nothing below can be asked."""
    jail = {"jail": path} if (path := os.environ.get("JAIL")) else {}
    return jail | {Path(path).name: path for path in os.environ.get("VOLUMES", "").split()}


def _once(exporter: Exporter) -> int:
    exporter.read()
    sys.stdout.write(exporter.metrics().decode())
    return int(any(record.failures for record in exporter.records.values()))


def _again_and_again(exporter: Exporter, port: int) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    begun = time.monotonic()

    def is_alive() -> bool:
        return time.monotonic() - begun < LONGEST * exporter.interval

    server = Server(exporter, port, is_alive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not stop.is_set():
        begun = time.monotonic()
        exporter.read()
        took = time.monotonic() - begun
        # slurmctld has at least as long without us as with us.
        stop.wait(max(took, exporter.interval - took))


if __name__ == "__main__":
    sys.exit(main())
