"""slurmctld and slurmd in containers, with a jail copied from the worker's own files."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from components import conventions as c
from components.slurm.nodeset import SLURMD_CAPABILITIES
from components.slurmconf import config_files, node_options
from tests.support import open_shells
from tests.support.containers import Start, put
from tests.support.slurmctld import (
    BRIEF,
    Slurmctld,
    accounts_of,
    start_controller,
    start_worker,
)
from tests.support.stack import VALID, alone
from tests.support.waiting import eventually

NODE = "cpu-0"
# The container's root is an overlay, and overlayfs cannot be nested: use volumes.
VOLUMES = [c.JAIL, c.WORKER_SCRATCH, c.WORKER_SPOOL]
USERS = {"researcher": 2000, "student": 1500}

COPY_FILES = f"cp --archive --one-file-system /. {c.JAIL}"
MAKE_MOUNT_POINTS = f"""
set -e
cd {c.JAIL}
mkdir -p dev proc sys .{c.WORKER_SPOOL} .{c.MUNGE_RUN} .{c.PROGRAMS}/scripts .{c.CHECKS_LOGS}
touch etc/hostname etc/hosts etc/resolv.conf
install -d -m 1777 srv shared
install -m 4755 usr/bin/id usr/bin/setuid-id
for user in {" ".join(USERS)}; do install -d -o $user -g $user home/$user; done
chmod 0700 {c.WORKER_SCRATCH}
mkdir -p {c.PROGRAMS}/scripts
"""


LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# NVIDIA's container runtime mounts each file of the machine's driver separately, so the simulated
# driver must also consist of one mount for each file.
GPU = f"""
set -e
cp {LIBRARIES}/libmunge.so.2 /tmp/library
printf '#!/bin/sh\necho a GPU\n' >/tmp/program
chmod +x /tmp/program
for path in {LIBRARIES}/libcuda.so.570.0 {LIBRARIES}/libnvidia-ml.so.570.0; do
  touch $path && mount --bind /tmp/library $path
done
touch /usr/bin/nvidia-smi && mount --bind /tmp/program /usr/bin/nvidia-smi
"""


def _ids(name: str) -> str:
    """Return uid and gid for Docker, which does not know the users by name."""
    return f"{USERS[name]}:{USERS[name]}"


@dataclass(frozen=True)
class Node:
    """A node with a configurable isolation of jobs."""

    worker: Slurmctld
    controller: Slurmctld
    name: str = NODE

    def isolate(self, **isolation: Any) -> None:
        """Install the options of a nodeset with this isolation; they apply to later jobs."""
        nodeset = {**VALID["nodesets"][0], "isolation": isolation}
        (built,) = alone(lambda values: values.update(nodesets=[nodeset])).nodesets
        self.configure(node_options(built))

    def configure(self, options: str) -> None:
        put(self.worker.container, {f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}": options})

    def root(self, command: str) -> str:
        """Return the output of root's shell command on the node, outside the jail."""
        return self.worker.run(command, user="root").strip()

    def user(self, command: str, name: str = "researcher") -> str:
        """Return the output of a user's shell command on the node, outside the jail."""
        return self.worker.run(f"cd /tmp; {command}", user=_ids(name)).strip()

    def job(self, script: str, *options: str, name: str = "researcher") -> str:
        """Return the output of a job with one task."""
        return self.user(f"srun --quiet {' '.join(options)} bash -c '{script}'", name)

    def terminal(self, script: str) -> str:
        """Return the output of a job with a terminal."""
        _, output = self.worker.container.exec_run(
            ["timeout", "60", "srun", "--quiet", "--pty", "bash", "-c", script],
            user=_ids("researcher"),
            workdir="/tmp",
            tty=True,
        )
        return cast(bytes, output).decode()

    def refusal(self, script: str, *options: str) -> str:
        """Return slurmd's log lines about a user's refused job."""
        before = len(self.worker.log())
        command = ("timeout", "60", "srun", *options, "bash", "-c", script)
        code, _ = open_shells.run(
            self.worker.container, command, _ids("researcher"), workdir="/tmp"
        )
        assert code != 0, "slurmd must refuse the job"

        def reason() -> str:
            text = self.worker.log()[before:]
            return text if "chroot: " in text else ""

        return eventually("slurmd logs the reason", reason)

    def submit(self, script: str, *options: str, name: str = "researcher") -> str:
        """Submit a batch job, and return its id."""
        return self.user(
            f"sbatch --parsable --output=/home/{name}/%j.txt {' '.join(options)} --wrap '{script}'",
            name,
        )

    def output(self, job: str, name: str = "researcher") -> str:
        """Return the output of a batch job so far."""
        return self.root(f"cat {c.JAIL}/home/{name}/{job}.txt 2>/dev/null || true")

    def has_started(self) -> bool:
        """Return whether slurmd has read its configuration."""
        return "slurmd started on" in self.worker.log()

    def is_clean(self) -> bool:
        """Return whether no process, directory or mount of any job is left."""
        left = self.root(
            f"find {c.WORKER_SCRATCH}/slurm-jobs /dev/shm/slurm-jobs -mindepth 1 2>/dev/null; "
            "pgrep --list-full 'slurmstepd|sleep' | grep -v infinity; "
            f"grep -c {c.WORKER_SCRATCH}/slurm-jobs /proc/mounts | grep -v ^0; true"
        )
        return not left


@contextmanager
def one_node(start: Start, cpus: str = "CPUs=8", cgroups: str = "auto") -> Iterator[Node]:
    """Start a cluster of one node in separate containers, with a simulated GPU driver.

    `cpus` are the CPU parameters of the node. Slurm allocates that many CPUs to jobs, and binds
    jobs to CPUs of the machine if the machine has enough.
    """

    def fill(worker: Slurmctld) -> None:
        worker.run(COPY_FILES, user="root")
        worker.run(GPU, user="root")

    with several_nodes(start, (NODE,), cpus, cgroups, fill, VOLUMES) as (node,):
        yield node


@contextmanager
def several_nodes(
    start: Start,
    names: Sequence[str],
    cpus: str,
    cgroups: str,
    fill: Callable[[Slurmctld], object],
    volumes: Sequence[str],
    hosts: Mapping[str, str] | None = None,
) -> Iterator[list[Node]]:
    """Start a cluster of nodes; `fill` copies the files of each node's jail."""
    slurm = {
        "timeouts": BRIEF,
        "cgroups": cgroups,
        "extra": {"slurm.conf": ["DisableRootJobs=NO"]},
    }
    config = alone(lambda values: values.update(slurm=slurm))
    secret = secrets.token_hex(64)
    accounts = accounts_of(config)
    controller = start_controller(start, secret)
    controller.install(config)
    put(controller.container, {f"{c.SLURM_ETC}/{k}": v for k, v in config_files(config).items()})
    controller.start()

    def prepare(worker: Slurmctld) -> None:
        put(worker.container, accounts)
        fill(worker)
        worker.run(MAKE_MOUNT_POINTS, user="root")
        Node(worker, controller).isolate()

    nodes: list[Node] = []
    for name in names:
        worker = start_worker(
            start,
            secret,
            name,
            f"{cpus} RealMemory=4000 Feature=cpu",
            controller,
            before=prepare,
            hosts={**(hosts or {}), **{each.name: each.worker.address for each in nodes}},
            cap_drop=["ALL"],
            cap_add=list(SLURMD_CAPABILITIES),
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            oom_score_adj=900,  # The kubelet sets a similar value.
            volumes=list(volumes),
        )
        nodes.append(Node(worker, controller, name))
    listed = "sinfo --noheader --format=%T"
    eventually("the nodes are idle", lambda: controller.run(listed).split() == ["idle"])
    for node in nodes:
        # slurmd registers before it reads plugstack.conf. Wait until slurmd has read this file,
        # because tests change the options in it.
        eventually("slurmd has started", node.has_started)
    yield nodes
    controller.stop()
