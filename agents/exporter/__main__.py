"""`python3 -m agents.exporter [--once]`: serve Slurm's state as metrics on http://:9341/metrics.

The exporter reads Slurm once in each interval, independently of scrapes. It continues if Slurm does
not answer. With --once, it reads all sources once, prints the metrics, and exits with 1 if a read
failed.

Environment variables:

    INTERVAL  seconds between two reads
    TOP       number of accounts, and number of users, that have their own series
    JOBS      maximum number of pairs of a running job and one of its nodes that have a series
    JAIL      mount point of the jail; if JAIL is not set, the jail is not read
    VOLUMES   mount points of the volumes in the jail; the last part of a path names the volume
    PORT      port of the server
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
"""Port of Slurm exporters in Prometheus' list of default ports."""
INTERVAL = 30.0
TOP = 50
JOBS = 1000
LONGEST = 5
"""Duration of a round of reads, in intervals, after which /alive fails. A round takes up to two
intervals if Slurm does not answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="agents.exporter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--once", action="store_true", help="read all data once, print the metrics, and exit"
    )
    options = parser.parse_args(arguments)
    interval = float(os.environ.get("INTERVAL", INTERVAL))
    slurm = Slurm(int(os.environ.get("TOP", TOP)), int(os.environ.get("JOBS", JOBS)))
    jail = [Jail(paths).source()] if (paths := _paths()) else []
    if options.once:
        return _once(Exporter([*jail, *slurm.each_time(), *slurm.in_turn()], [], interval))
    # Read the jail first: if Slurm does not answer, the attempts to read Slurm use up the interval.
    exporter = Exporter([*jail, *slurm.each_time()], slurm.in_turn(), interval)
    _again_and_again(exporter, int(os.environ.get("PORT", PORT)))
    return 0


def _paths() -> dict[str, str]:
    """Return the paths of the jail and its volumes, by name.

    No path may be below another path: if the upper file system hangs, nothing below it can be read.
    """
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
        # Pause at least as long as the reads took, to limit the load on slurmctld.
        stop.wait(max(took, exporter.interval - took))


if __name__ == "__main__":
    sys.exit(main())
