"""slurmctld and slurmd in containers."""

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
from tests.support.waiting import becomes

FIND_SLURMD = "pgrep -of ^/usr/sbin/slurmd"
"""Shell command that prints the process id of slurmd, without slurmd's forked children."""
BRIEF = {"kill_wait": 2, "message": 8, "unkillable_step": 40}
"""`slurm.timeouts` for tests: SIGKILL follows SIGTERM after two seconds instead of thirty."""
OPEN = "no_new_privs=no\nprivate_dev=no\noverlay=no\n"
"""The required options of the SPANK plugin, without isolation."""
PREPARE = f"""
set -e
# Only names in /etc/hosts are needed: make lookups of other names fail at once.
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
"""Shell script that starts munged and installs the keys."""

START = f"""
mkdir -p -m 0700 {c.CONTROLLER_SPOOL}/state
# Start slurmctld by its path. Otherwise, on reconfigure, slurmctld executes the target of the link
# /usr/sbin/slurmctld, and the process gets another name.
/usr/sbin/slurmctld -D >/tmp/log 2>&1 &
# A client that connects too early retries only after ten seconds.
until grep -q 'Running as primary controller' /tmp/log; do
  kill -0 $! 2>/dev/null || exit 1
  sleep 0.05
done
# slurmctld logs this slightly before it answers; a busy machine delays the answer.
for _ in $(seq 20); do
  timeout 60 scontrol ping | grep 'is UP' && exit
  sleep 0.1
done
exit 1
"""
STOP = f"""
pkill -x slurmctld
# Kill its child processes: they would report nodes that the next slurmctld does not know.
for program in $(pgrep -f '^/bin/sh {c.ABSENT_PROGRAM}'); do
  kill -- -$program  # its whole process group
done
for _ in $(seq 600); do
  pgrep -x slurmctld >/dev/null
  # Code 1 means that no process matches; 2 and 3 mean that pgrep failed.
  [ $? = 1 ] && exit
  sleep 0.05
done
exit 1
"""
HARMLESS = (
    # The message applies only to sites with pam_slurm_adopt, which this project does not use.
    r"If using PrologFlags=Contain for pam_slurm_adopt, proctrack/cgroup is required",
    # Each test starts slurmctld without a saved state.
    r"Could not open \S+ (\S+ )?state file \S+: No such file or directory",
    r"NOTE: Trying backup state save file",
    # A busy machine causes this error, not the configuration.
    r"High latency for 1000 calls to gettimeofday",
)

_OF_THE_JAIL = ("mpi.conf", "oci.conf", "plugstack.conf")


@dataclass(frozen=True)
class Slurmctld:
    """slurmctld in a container. `install` removes its state together with the old configuration."""

    container: Container

    @property
    def address(self) -> str:
        """Address in the network of the containers."""
        self.container.reload()
        (network,) = self.container.attrs["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def run(self, command: str, user: str = "slurm") -> str:
        """Return the output of a shell command. Raises AssertionError if it fails."""
        code, text = open_shells.run(self.container, command, user)
        assert code == 0, f"{command}: exit code {code}; output: {text}"
        return text

    def job_state(self, job: str) -> str:
        """Return a job's state, such as `RUNNING`."""
        return self.run(f"squeue --noheader --states=all --jobs={job} --format=%T").strip()

    def wait_for_job(self, job: str, state: str) -> None:
        becomes(f"the state of job {job}", lambda: self.job_state(job), state)

    def install(self, config: Settings, files: Mapping[str, str] | None = None) -> None:
        """Install Slurm's files, by default those of the settings, and remove slurmctld's state."""
        files = files or config_files(config)
        self.run(f"rm -rf {c.SLURM_ETC}/* {c.CONTROLLER_SPOOL}/state", user="root")
        put(self.container, {f"{c.SLURM_ETC}/{name}": text for name, text in files.items()})
        put(self.container, accounts_of(config))
        self.run(f"install -o slurm -m 0400 /tmp/slurm.key {c.SLURM_ETC}/slurm.key", user="root")

    def start(self) -> None:
        """Start slurmctld, and wait until it answers."""
        code, _ = open_shells.run(self.container, START, "slurm")
        assert code == 0, f"slurmctld does not start:\n{self.log()}"

    def stop(self) -> None:
        """Stop slurmctld if it runs, and wait until it has exited."""
        code, output = open_shells.run(self.container, STOP)
        assert code == 0, f"slurmctld does not stop: exit code {code}; {output!r}\n{self.log()}"

    def log(self) -> str:
        return self.run("cat /tmp/log")

    def errors(self, *harmless: str) -> list[str]:
        """Return the errors in the log, except harmless errors (HARMLESS)."""
        known = re.compile("|".join((*HARMLESS, *harmless)))
        return [
            line
            for line in self.log().splitlines()
            if re.search(r"\b(error|fatal):", line) and not known.search(line)
        ]


def without_jail(config: Settings, root: Path = Path()) -> dict[str, str]:
    """Return Slurm's files for nodes without a jail, whose jobs run in slurmd's own root.

    mpi.conf is left out: it names a directory that only the SPANK plugin creates.
    """
    files = config_files(config, root)
    return {name: text for name, text in files.items() if name not in _OF_THE_JAIL}


def accounts_of(config: Settings) -> dict[str, str]:
    """Return files by path that define the users of these settings in a container."""
    return {
        f"{c.EXTRAUSERS}/passwd": people.passwd(config.users),
        f"{c.EXTRAUSERS}/group": people.group(config.users, config.groups),
    }


def prepare(container: Container, secret: str) -> Slurmctld:
    """Start munged in a container, and install the keys, which all have the value `secret`."""
    slurmctld = Slurmctld(container)
    put(container, {"/tmp/secret": secret})
    slurmctld.run(PREPARE, user="root")
    return slurmctld


def controller_address() -> str:
    """Return the controller's host name in the tests' default settings."""
    stack = alone()
    return c.controller_address(stack.namespace, stack.cluster.domain)


def start_controller(
    start: Start, secret: str, hosts: Mapping[str, str] | None = None, **options: Any
) -> Slurmctld:
    """Start the controller's container with munged and keys; `hosts` are extra host names."""
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
    hosts: Mapping[str, str] | None = None,
    **options: Any,
) -> Slurmctld:
    """Start a container whose slurmd registers as `node`.

    `description` has the node's parameters as in slurm.conf, such as `CPUs=8`. `before` is called
    with the container just before slurmd starts.
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
    put(worker.container, {f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}": OPEN})
    before(worker)
    put(worker.container, {c.JAIL_MARKER: "0\n"})
    start_slurmd(worker)
    return worker


def resume(controller: Slurmctld, node: str) -> None:
    """Resume a node that slurmd has drained by mistake after a job's end.

    On a busy machine, slurmstepd 24.11 may wait for a signal that has already arrived (SchedMD's
    ticket 22864, fixed in 25.05). The job then remains until UnkillableStepTimeout, and
    slurmd drains the node.
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
    """Start slurmd, with additional environment variables."""
    variables = {"POD_IP": worker.address, **environment}
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    worker.run(f"{words} {c.PROGRAMS}/slurmd >/tmp/log 2>&1 &", user="root")


def kill_slurmd(worker: Slurmctld) -> None:
    """Kill slurmd and the program that restarts it."""
    worker.run("pkill -KILL -f '^python3.*[k]eep_slurmd'; pkill -KILL -x slurmd", user="root")
