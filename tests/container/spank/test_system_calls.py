"""System calls that the filter of daemons (agents/confine.py) permits."""

import json

import pytest

from components import conventions as c
from tests.support.slurmctld import FIND_SLURMD
from tests.support.spank import Node

ASK = """
import ctypes, errno, json, os, sys
sys.path.insert(0, sys.argv[1])
import confine, seccomp

names = [name for names in confine.REFUSED.values() for name in names]
numbers = {name: seccomp.resolve_syscall(seccomp.Arch(), name) for name in names}
confine.confine()
libc = ctypes.CDLL(None, use_errno=True)

def ask(number):
    made = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
    return errno.errorcode[ctypes.get_errno()] if made < 0 else "allowed"

answers = {name: ask(number) for name, number in numbers.items() if number >= 0}
print(json.dumps({**answers, "none of them": ask(1000), "getpid": ask(39)}))
"""


@pytest.fixture(scope="module")
def answers(running: Node) -> dict[str, str]:
    """Results of system calls under the filter, for root with the capabilities of a daemon."""
    agents = f"{c.PROGRAMS}/agents"
    results: dict[str, str] = json.loads(
        running.root(f"python3 -I - {agents} <<'END'\n{ASK}\nEND").splitlines()[-1]
    )
    return results


def test_filter_refuses_unneeded_system_calls_even_to_root(answers: dict[str, str]) -> None:
    refused = {name for name, answer in answers.items() if answer == "EPERM"}

    assert {"add_key", "keyctl", "request_key", "io_uring_setup", "bpf", "kexec_load"} <= refused
    assert answers.keys() - refused == {"none of them", "getpid"}


def test_filter_reports_unknown_system_calls_as_missing(answers: dict[str, str]) -> None:
    assert answers["none of them"] == "ENOSYS"
    assert answers["getpid"] == "allowed"


SOCKETS = """
import errno, socket

def is_refused(family, kind):
    try:
        socket.socket(family, kind).close()
    except OSError as error:
        return error.errno == errno.EPERM
    return False

kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
print(*(family for family in range(64) if not all(is_refused(family, kind) for kind in kinds)))
"""


def test_only_unix_ip_and_netlink_sockets_are_permitted(node: Node) -> None:
    node.root(f"cat >/mnt/jail/srv/sockets.py <<'END'\n{SOCKETS}\nEND")

    assert node.job("python3 /srv/sockets.py") == "1 2 10 16"


def test_filter_applies_to_slurmd_and_jobs(node: Node) -> None:
    filtered = "grep -c ^Seccomp:[[:space:]]2 /proc/{pid}/status"

    assert node.root(filtered.format(pid=f"$({FIND_SLURMD})")) == "1"
    assert node.job(filtered.format(pid="self")) == "1"


REMOUNT = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
user, mounts, cgroups = 0x10000000, 0x00020000, 0x02000000
made = libc.unshare(user | mounts | cgroups)
print("made" if made == 0 else errno.errorcode[ctypes.get_errno()])
"""


def test_root_in_a_job_cannot_create_a_cgroup_namespace(node: Node) -> None:
    """In a new cgroup namespace, root could mount the node's cgroups and write to them."""
    node.root(f"cat >/mnt/jail/srv/remount.py <<'END'\n{REMOUNT}\nEND")

    assert node.root("cd / && srun --quiet python3 /srv/remount.py") == "EPERM"
    assert node.job("python3 /srv/remount.py") == "made"


def test_user_namespaces_and_debuggers_work_with_the_filter(node: Node) -> None:
    inside = "unshare --user --map-root-user --mount --pid --fork sh -c"
    exchange = "mount -t tmpfs none /mnt && mkdir /mnt/old && cd /mnt && pivot_root . old"
    trace_me = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"

    assert node.job(f'{inside} "{exchange} && echo made"') == "made"
    assert node.job(f'python3 -c "{trace_me}"') == "0"
