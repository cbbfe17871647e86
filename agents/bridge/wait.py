"""`python3 -m agents.bridge.wait HOST PORT [MACHINE]`: wait for the pods on this node.

The program needs only the standard library. It asks the bridge again and again. While the bridge
does not answer, the program waits: a job that started too early would use the CPUs and memory of
the pods. Without the key that nodes share with the bridge (agents/bridge/proof.py), it fails.

Without MACHINE, an epilog runs the program, which ends when all pods of the job on this node have
stopped. With MACHINE, the name of the Kubernetes node, the program runs before slurmd, and ends
when all pods of jobs on this machine have stopped.

Environment variables, from slurmd:

    SLURM_JOB_ID     number of the job
    SLURMD_NODENAME  name of this node in Slurm
"""

import http.client
import os
import sys
import time
from contextlib import closing
from pathlib import Path

from agents.bridge.proof import KEY, proof

PAUSE = 1.0
"""Seconds between two questions."""
_TIMEOUT = 10.0


def ask(host: str, port: int, key: bytes, question: str) -> int | None:
    """Ask the bridge once. Return the status of its answer, or None without an answer."""
    signed = {"Authorization": proof(key, question, time.time())}
    with closing(http.client.HTTPConnection(host, port, timeout=_TIMEOUT)) as connection:
        try:
            connection.request("GET", question, headers=signed)
            return connection.getresponse().status
        except (http.client.HTTPException, OSError):
            return None


def main(host: str, port: int, machine: str = "", *, key: Path = Path(KEY)) -> int:
    if machine:
        question = f"/machines/{machine}"
    else:
        question = f"/jobs/{os.environ['SLURM_JOB_ID']}/{os.environ['SLURMD_NODENAME']}"
    was_refused = False
    # Read the key each time: Kubernetes changes the file if the Secret changes.
    while (status := ask(host, port, key.read_bytes(), question)) != http.client.OK:
        if status == http.client.UNAUTHORIZED and not was_refused:
            was_refused = True
            remedy = "check the clock of its machine, and the Secret bridge-key"
            print(f"the bridge does not accept this node's questions: {remedy}", flush=True)
        time.sleep(PAUSE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
