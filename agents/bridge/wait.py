"""`python3 -m agents.bridge.wait HOST PORT [MACHINE]`: wait for the pods on this node.

The program needs only the standard library. It asks the bridge again and again. While the bridge
does not answer, the program waits: a job that started too early would use the CPUs and memory of
the pods.

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

PAUSE = 1.0
"""Seconds between two questions."""
_TIMEOUT = 10.0


def agrees(host: str, port: int, question: str) -> bool:
    """Ask the bridge once. Without an answer, return False."""
    with closing(http.client.HTTPConnection(host, port, timeout=_TIMEOUT)) as connection:
        try:
            connection.request("GET", question)
            return connection.getresponse().status == http.client.OK
        except (http.client.HTTPException, OSError):
            return False


def main(host: str, port: int, machine: str = "") -> int:
    if machine:
        question = f"/machines/{machine}"
    else:
        question = f"/jobs/{os.environ['SLURM_JOB_ID']}/{os.environ['SLURMD_NODENAME']}"
    while not agrees(host, port, question):
        time.sleep(PAUSE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
