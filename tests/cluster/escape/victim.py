"""Another user with jobs on the same nodes, and commands that run as that user."""

import difflib
import json
from dataclasses import dataclass
from typing import Any

from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD

OTHER = 5
"""Uid of the other user: `games`, an account of every Debian system that never logs in."""
OTHER_GROUP = 60
NODE = "cpu-0"
SCRATCH = "/var/spool/slurmstack"


@dataclass(frozen=True)
class Victim:
    """The other user, with a job on a worker, a process on the login node, and files."""

    cluster: Cluster
    folder: str
    """Folder in the jail that only the owner may enter."""
    public: str
    """A file of the other user that all users may read."""
    secret: str
    job: int
    segment: int
    """Id of a System V shared memory segment on the worker."""
    on_worker: int
    """Process id of the job's step on the worker."""
    on_login: int
    """Process id of the user's process on the login node."""

    def run(self, script: str, **options: Any) -> str:
        """Run a script as the other user in the jail, from the login node."""
        return self.cluster.as_user(OTHER, OTHER_GROUP, script, **options)

    def state(self) -> dict[str, str]:
        """Return what an attack might change: the job, its processes and files, the nodes."""
        job, own = self.job, f"slurm-jobs/{self.job}.{OTHER}"
        fields = "%i %T %r %u %N %S %l %p"
        slurm = (
            f"squeue -h -j {job} -o '{fields}'; scontrol show job {job} | grep -o Restarts=.;"
            "sinfo -h -N -o '%N %t %E' | sed -E 's/ (idle|mix|alloc|comp|plnd)-? / up /';"
            "sinfo -h -o '%P %a'; scontrol show reservations"
        )
        # Process id and start time identify a process.
        process = "cut -d' ' -f1,22 /proc/{pid}/stat"
        worker = (
            f"{process.format(pid=self.on_worker)}; {process.format(pid=f'$({FIND_SLURMD})')};"
            f"cat {SCRATCH}/{own}/tmp/secret {SCRATCH}/{own}/var_tmp/secret;"
            f"cat /dev/shm/{own}/shm/secret; stat -c '%i %a' {SCRATCH}/{own} /dev/shm/{own}"
        )
        login = (
            f"{process.format(pid=self.on_login)}; {process.format(pid='$(pgrep -ox sshd)')};"
            f"stat -c '%U %a %i %h' /mnt/jail{self.folder}/secret /mnt/jail{self.public};"
            f"cat /mnt/jail{self.folder}/secret"
        )
        return {
            "slurm": in_shell(self.cluster, self.cluster.controller(), "slurmctld", slurm),
            "worker": in_shell(self.cluster, NODE, "slurmd", worker),
            "login": in_shell(self.cluster, "login-0", "sshd", login),
        }


def in_shell(cluster: Cluster, pod: str, container: str, script: str, **options: Any) -> str:
    """Return the output of a script that root runs in a container."""
    return cluster.in_pod(pod, container, "sh", "-c", script, **options)


def changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Return the differences as a diff, which is empty if there are none."""
    return "\n".join(
        line
        for where in before
        for line in difflib.unified_diff(
            before[where].splitlines(), after[where].splitlines(), lineterm="", n=0
        )
    )


Outcomes = dict[str, str]


def parsed(output: str) -> Outcomes:
    answer: Outcomes = json.loads(output)
    return answer
