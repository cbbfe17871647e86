"""Slurm's daemons in containers: slurmctld, and slurmd of any node."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.models.containers import Container

from components import conventions as c
from components.identity import users as people
from components.settings import Settings
from components.slurmconf import config_files
from tests.support import open_shells
from tests.support.containers import Start, put
from tests.support.stack import alone

FIND_SLURMD = "pgrep -of ^/usr/sbin/slurmd"
"""Prints slurmd's process id: that of the first, which the others were forked from."""
BRIEF = {"kill_wait": 2, "message": 8, "unkillable_step": 40}
"""`slurm.timeouts` for tests: SIGKILL follows SIGTERM after two seconds instead of thirty."""
PREPARE = f"""
set -e
# No name but those of /etc/hosts is to be asked for, and who does so learns at once that it fails.
echo nameserver 127.0.0.1 >/etc/resolv.conf
install -d -o munge -g munge -m 0700 /tmp/munge
install -d -o munge -g munge -m 0755 {c.MUNGE_RUN}
install -o munge -m 0600 /tmp/secret /tmp/munge/key
install -d {c.JWT_KEY_DIR} {c.SLURM_RUN} /run/slurmctld
chown slurm {c.SLURM_RUN} /run/slurmctld
install -o slurm -m 0400 /tmp/secret {c.JWT_KEY}
install -o slurm -m 0400 /tmp/secret /tmp/slurm.key
setpriv --reuid munge --regid munge --clear-groups munged --force --key-file=/tmp/munge/key \
  --seed-file=/tmp/munge/seed --pid-file=/tmp/munge/pid
"""
"""munged and the keys."""

START = f"""
mkdir -p -m 0700 {c.CONTROLLER_SPOOL}/state
# By its path: for a new configuration it begins anew, else under the name of what this leads to.
/usr/sbin/slurmctld -D >/tmp/log 2>&1 &
# A client that comes too early tries again only after ten seconds.
until grep -q 'Running as primary controller' /tmp/log; do
  kill -0 $! 2>/dev/null || exit 1
  sleep 0.05
done
# It says so a moment before it answers, which a busy machine draws out.
for _ in $(seq 20); do
  timeout 60 scontrol ping | grep 'is UP' && exit
  sleep 0.1
done
exit 1
"""
STOP = f"""
pkill -x slurmctld
# Otherwise what it has started tells the next slurmctld of nodes that this one does not know.
for program in $(pgrep -f '^/bin/sh {c.ABSENT_PROGRAM}'); do
  kill -- -$program  # its whole process group
done
for _ in $(seq 600); do
  pgrep -x slurmctld >/dev/null
  # 1 says that there is none; 2 and 3, that pgrep could not look.
  [ $? = 1 ] && exit
  sleep 0.05
done
exit 1
"""
HARMLESS = (
    # Nothing here uses pam_slurm_adopt, and Slurm itself says to ignore it then.
    r"If using PrologFlags=Contain for pam_slurm_adopt, proctrack/cgroup is required",
    # Every cluster begins without a state.
    r"Could not open \S+ (\S+ )?state file \S+: No such file or directory",
    r"NOTE: Trying backup state save file",
    # Said of a busy machine, not of the configuration.
    r"High latency for 1000 calls to gettimeofday",
)

_OF_THE_JAIL = ("mpi.conf", "oci.conf", "plugstack.conf")


@dataclass(frozen=True)
class Slurmctld:
    """slurmctld in a container; each configuration starts on a state of its own."""

    container: Container

    @property
    def address(self) -> str:
        """Its address in the network of the containers."""
        self.container.reload()
        (network,) = self.container.attrs["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def run(self, command: str, user: str = "slurm") -> str:
        """What a shell command prints. Raises AssertionError where it fails."""
        code, text = open_shells.run(self.container, command, user)
        assert code == 0, f"{command}: {code}: {text}"
        return text

    def job_state(self, job: str) -> str:
        """A job's state, as `RUNNING`."""
        return self.run(f"squeue --noheader --states=all --jobs={job} --format=%T").strip()

    def install(self, config: Settings, files: Mapping[str, str] | None = None) -> None:
        """Puts `files`, or those of the settings, where slurmctld reads them; no state is left."""
        files = files or config_files(config)
        self.run(f"rm -rf {c.SLURM_ETC}/* {c.CONTROLLER_SPOOL}/state", user="root")
        put(self.container, {f"{c.SLURM_ETC}/{name}": text for name, text in files.items()})
        put(self.container, accounts_of(config))
        self.run(f"install -o slurm -m 0400 /tmp/slurm.key {c.SLURM_ETC}/slurm.key", user="root")

    def start(self) -> None:
        """Starts it and waits until it answers."""
        code, _ = open_shells.run(self.container, START, "slurm")
        assert code == 0, f"slurmctld does not start:\n{self.log()}"

    def stop(self) -> None:
        """Ends it, if it runs, and waits until it is gone."""
        code, output = open_shells.run(self.container, STOP)
        assert code == 0, f"slurmctld does not end: {code}: {output!r}\n{self.log()}"

    def log(self) -> str:
        return self.run("cat /tmp/log")

    def errors(self, *harmless: str) -> list[str]:
        """Errors in the log that are not known to be harmless."""
        known = re.compile("|".join((*HARMLESS, *harmless)))
        return [
            line
            for line in self.log().splitlines()
            if re.search(r"\b(error|fatal):", line) and not known.search(line)
        ]


def without_jail(config: Settings, root: Path = Path()) -> dict[str, str]:
    """Slurm's files of nodes without a jail: their jobs run where slurmd does.

    Without the plugin, no job has the directory that mpi.conf names.
    """
    files = config_files(config, root)
    return {name: text for name, text in files.items() if name not in _OF_THE_JAIL}


def accounts_of(config: Settings) -> dict[str, str]:
    """The files, by their paths, by which a container knows the users of these settings."""
    return {
        f"{c.EXTRAUSERS}/passwd": people.passwd(config.users),
        f"{c.EXTRAUSERS}/group": people.group(config.users, config.groups),
    }


def prepare(container: Container, secret: str) -> Slurmctld:
    """Starts munged in a container and puts the keys there, all of them this one secret."""
    slurmctld = Slurmctld(container)
    put(container, {"/tmp/secret": secret})
    slurmctld.run(PREPARE, user="root")
    return slurmctld


def controller_address() -> str:
    """The controller's name in the configuration of `settings()`."""
    stack = alone()
    return c.controller_address(stack.namespace, stack.cluster.domain)


def start_controller(
    start: Start, secret: str, hosts: Mapping[str, str] | None = None, **options: Any
) -> Slurmctld:
    """The controller's container with munged and its keys, which knows further `hosts`."""
    address = controller_address()
    container = start(
        "controller",
        hostname=c.CONTROLLER_HOST,
        extra_hosts={address: "127.0.0.1", **(hosts or {})},
        **options,
    )
    return prepare(container, secret)


def start_worker(
    start: Start,
    secret: str,
    node: str,
    description: str,
    controller: Slurmctld,
    before: Callable[[Slurmctld], object] = lambda _: None,
    populated: bool = True,
    hosts: Mapping[str, str] | None = None,
    **options: Any,
) -> Slurmctld:
    """A container whose slurmd registers as `node`, which has what `description` says.

    It is given to `before` when all is there but slurmd. Without `populated`, nothing says that
    there is a jail.
    """
    address = controller_address()
    container = start(
        "worker",
        hostname=node,
        extra_hosts={address: controller.address, **(hosts or {})},
        environment={
            "NODE_NAME": node,
            "MACHINE": f"machine-of-{node}",
            "NODE_CONF": description,
            "NODE_SHAPE": description,
            "SLURM_CONF_SERVER": c.conf_server(address),
            "SLURMSTACK_SCRATCH": c.WORKER_SCRATCH,
        },
        **{
            "cap_add": ["SYS_ADMIN", "SYS_NICE", "SYS_PTRACE"],
            "security_opt": ["seccomp=unconfined"],
            **options,
        },
    )
    worker = prepare(container, secret)
    put(worker.container, {f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}": ""})
    before(worker)
    if populated:
        put(worker.container, {c.JAIL_MARKER: "0\n"})
    start_slurmd(worker)
    return worker


def resume(controller: Slurmctld, node: str) -> None:
    """Resume a node that slurmd has drained because of a job that had ended.

    On a busy machine slurmstepd 24.11 may wait for a signal that has come already (SchedMD's
    ticket 22864, mended in 25.05). The job then stays for UnkillableStepTimeout, and slurmd drains
    the node.
    """
    reason = controller.run(f"sinfo --noheader --nodes={node} --format=%E").strip()
    if reason == "Kill task failed":
        controller.run(f"scontrol update nodename={node} state=resume", user="root")


def find_directories(job: int | str) -> str:
    """Return a command that prints the paths of a job's directories on its node."""
    places = f"{c.WORKER_SCRATCH}/slurm-jobs /dev/shm/slurm-jobs"
    named = f"-name '{job}.*' -o -name 'ended.{job}.*'"
    return f"find {places} -maxdepth 1 {named} 2>/dev/null || true"


def start_slurmd(worker: Slurmctld, **environment: str) -> None:
    """Start slurmd, with further variables."""
    variables = {"POD_IP": worker.address, **environment}
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    worker.run(f"{words} {c.PROGRAMS}/slurmd >/tmp/log 2>&1 &", user="root")


def kill_slurmd(worker: Slurmctld) -> None:
    """Kill slurmd and the program that restarts it."""
    worker.run("pkill -KILL -f '^python3.*[k]eep_slurmd'; pkill -KILL -x slurmd", user="root")
