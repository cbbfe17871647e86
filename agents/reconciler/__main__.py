"""`python3 -m agents.reconciler`: looks again and again, until it is told to stop.

It takes its way from the environment: REST_URL (slurmrestd), JWT_KEY (file with slurmctld's key),
NODESETS (folder with a file for each nodeset, which says how many nodes it is to have).
"""

import os
import signal
import sys
import threading
from pathlib import Path

from agents.reconciler.ghosts import ghosts, wanted_nodesets
from agents.slurm import Client, SlurmError, from_key

INTERVAL = 15.0
"""Seconds between two looks."""
USER = "slurm"
"""SlurmUser may do with nodes as it likes."""


def forget_ghosts(client: Client, folder: Path) -> None:
    """Deletes the records of ghosts. Raises where Slurm or the settings cannot be asked."""
    for name in ghosts(client.nodes(), wanted_nodesets(folder)):
        client.forget(name)
        print(f"{name}: its record is deleted; the settings do not name it, its slurmd is gone")


def main() -> int:
    client = Client(os.environ["REST_URL"], from_key(Path(os.environ["JWT_KEY"]), USER))
    folder = Path(os.environ["NODESETS"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.is_set():
        try:
            forget_ghosts(client, folder)
        except (OSError, SlurmError, ValueError) as error:
            print(f"nothing is changed: {error}", file=sys.stderr)
        stop.wait(INTERVAL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
