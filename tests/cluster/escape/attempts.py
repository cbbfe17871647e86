"""Attempts to leave the jail or to reach other users' processes, with the expected refusals.

The tests read this table. Inside the jail, where only Python's standard library is available, this
file is also a program. `python3 attempts.py PLACE FACTS` runs all attempts that have a refusal for
PLACE, each in its own process. It prints the outcomes as JSON: the errno's name, or the result of a
successful attempt.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 20
"""Time limit of one attempt in seconds."""

Facts = dict[str, Any]
"""Facts that an attacker may know: see `facts()` in conftest.py."""


@dataclass(frozen=True)
class Attempt:
    run: Callable[[Facts], object]
    refusals: dict[str, tuple[str, ...]]
    """Errnos of a refusal, by place (`job`, `login`, or `root`: a job of root)."""


ATTEMPTS: dict[str, Attempt] = {}


def attempt(name: str, **refusals: str) -> Callable[[Callable[[Facts], object]], None]:
    """Register a function under the name of its attempt; `refusals` are errnos by place."""

    def enter(run: Callable[[Facts], object]) -> None:
        assert name not in ATTEMPTS, name
        expected = {place: tuple(names.split()) for place, names in refusals.items()}
        ATTEMPTS[name] = Attempt(run, expected)

    return enter


# --- System calls that Python does not wrap -------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_SYSCALLS = {
    "ptrace": 101,
    "syslog": 103,
    "pivot_root": 155,
    "acct": 163,
    "swapon": 167,
    "reboot": 169,
    "init_module": 175,
    "quotactl": 179,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "kcmp": 312,
    "bpf": 321,
    "userfaultfd": 323,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
}
"""Numbers of system calls on x86-64, the only architecture of the images."""

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MNT_DETACH = 2
NETLINK_NETFILTER = 12
DISK = os.makedev(8, 0)
"""Device number of /dev/sda."""


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _call(name: str, *arguments: Any) -> int:
    # Pass each number as a 64-bit value: the upper bits of a narrower argument would be undefined.
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    return _check(_libc.syscall(ctypes.c_long(_SYSCALLS[name]), *wide))


def _mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> int:
    return _check(
        _libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode())
    )


def _umount(target: str) -> int:
    return _check(_libc.umount2(target.encode(), MNT_DETACH))


def _unshare(flags: int) -> int:
    return _check(_libc.unshare(flags))


def _write(path: str, text: str) -> None:
    """Write `text` into an existing file. Raises OSError if the file is missing."""
    fd = os.open(path, os.O_WRONLY)
    try:
        if text:
            os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def _reading(path: str) -> Callable[[Facts], object]:
    """Return an attempt that reads a path; the path may contain names of facts in braces."""
    return lambda facts: _read(path.format_map(facts))


def _listing(path: str) -> Callable[[Facts], object]:
    return lambda facts: list(Path(path.format_map(facts)).iterdir())


def _writing(path: str, text: str = "") -> Callable[[Facts], object]:
    return lambda facts: _write(path.format_map(facts), text)


def _replacing(path: str) -> Callable[[Facts], object]:
    return lambda _: Path(path).rename(f"{path}.old")


def _become_root_of_namespaces(flags: int = 0) -> None:
    """Become root of a new user namespace and of the new namespaces in `flags`."""
    user, group = os.getuid(), os.getgid()
    _unshare(CLONE_NEWUSER | flags)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {user} 1")
    _write("/proc/self/gid_map", f"0 {group} 1")


# --- Other users' processes -----------------------------------------------------------------------
# A job cannot see other users' processes, so the kernel answers that they do not exist. A login
# session can see them, as on any machine, but the kernel does not permit access.

HIDDEN = "ESRCH"
NO_FILE = "ENOENT"


@attempt("to kill another user's process", job=HIDDEN, login="EPERM", root=HIDDEN)
def _kill(facts: Facts) -> None:
    os.kill(facts["victim"], signal.SIGKILL)


@attempt("to signal another user's process through a pidfd", job=HIDDEN, login="EPERM", root=HIDDEN)
def _pidfd_kill(facts: Facts) -> object:
    fd = _call("pidfd_open", facts["victim"], 0)
    return _call("pidfd_send_signal", fd, signal.SIGKILL, None, 0)


@attempt("to take a file from another user's process", job=HIDDEN, login="EPERM", root=HIDDEN)
def _pidfd_getfd(facts: Facts) -> object:
    return _call("pidfd_getfd", _call("pidfd_open", facts["victim"], 0), 0, 0)


@attempt("to trace another user's process", job=HIDDEN, login="EPERM", root=HIDDEN)
def _ptrace(facts: Facts) -> object:
    return _call("ptrace", 16, facts["victim"], None, None)  # PTRACE_ATTACH


@attempt("to read another user's memory", job=HIDDEN, login="EPERM", root=HIDDEN)
def _process_vm_readv(facts: Facts) -> object:
    room = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(room), 8)
    return _call("process_vm_readv", facts["victim"], vector, 1, vector, 1, 0)


@attempt("to compare another user's files with one's own", job=HIDDEN, login="EPERM", root=HIDDEN)
def _kcmp(facts: Facts) -> object:
    return _call("kcmp", os.getpid(), facts["victim"], 0, 0, 0)


@attempt("to limit another user's CPU time", job=HIDDEN, login="EPERM", root=HIDDEN)
def _prlimit(facts: Facts) -> object:
    return resource.prlimit(facts["victim"], resource.RLIMIT_CPU, (1, 1))


@attempt("to slow another user's process down", job=HIDDEN, login="EPERM", root=HIDDEN)
def _setpriority(facts: Facts) -> None:
    os.setpriority(os.PRIO_PROCESS, facts["victim"], 19)


@attempt("to bind another user's process to a CPU", job=HIDDEN, login="EPERM", root=HIDDEN)
def _sched_setaffinity(facts: Facts) -> None:
    os.sched_setaffinity(facts["victim"], {0})


for file in ("environ", "mem", "maps", "auxv", "syscall"):
    attempt(f"to read another user's /proc/PID/{file}", job=NO_FILE, login="EACCES", root=NO_FILE)(
        _reading(f"/proc/{{victim}}/{file}")
    )
for file in ("fd", "root/", "cwd/", "map_files"):
    attempt(f"to list another user's /proc/PID/{file}", job=NO_FILE, login="EACCES", root=NO_FILE)(
        _listing(f"/proc/{{victim}}/{file}")
    )


@attempt(
    "to expose another user's process to the OOM killer",
    job=NO_FILE,
    login="EACCES",
    root=NO_FILE,
)
def _oom(facts: Facts) -> None:
    _write(f"/proc/{facts['victim']}/oom_score_adj", "1000")


@attempt("to attach another user's shared memory", job="EACCES EINVAL")
def _shmat(facts: Facts) -> object:
    _libc.shmat.restype = ctypes.c_long
    return _check(_libc.shmat(facts["segment"], None, 0))


# --- Daemons --------------------------------------------------------------------------------------
# In a job, process 1 keeps the job's namespaces. On a login node, process 1 is sshd's parent. In
# both places, process 1 runs as root, so a user must not reach its files.

attempt("to list /proc/1/fd", job="EACCES", login="EACCES")(_listing("/proc/1/fd"))
for file in ("root/", "cwd/"):
    attempt(f"to list /proc/1/{file}", job="EACCES", login="EACCES", root="EACCES")(
        _listing(f"/proc/1/{file}")
    )
for file in ("environ", "mem", "maps", "exe", "fd/0"):
    attempt(f"to read /proc/1/{file}", job="EACCES", login="EACCES", root="EACCES")(
        _reading(f"/proc/1/{file}")
    )
for file in ("mnt", "pid", "user", "net", "ipc"):
    attempt(
        f"to open the {file} namespace of process 1", job="EACCES", login="EACCES", root="EACCES"
    )(_reading(f"/proc/1/ns/{file}"))


@attempt("to join the namespaces of process 1", job="EPERM", login="EPERM", root="EPERM")
def _setns(_: Facts) -> object:
    return _call("setns", _call("pidfd_open", 1, 0), CLONE_NEWNS | CLONE_NEWPID)


@attempt("to kill process 1", job="EPERM", login="EPERM")
def _kill_init(_: Facts) -> None:
    os.kill(1, signal.SIGKILL)


@attempt("to trace process 1", job="EPERM", login="EPERM", root="EPERM")
def _trace_init(_: Facts) -> object:
    return _call("ptrace", 16, 1, None, None)


@attempt("to trace the node's daemon", job=HIDDEN, login="EPERM", root=HIDDEN)
def _trace_daemon(facts: Facts) -> object:
    return _call("ptrace", 16, facts["daemon"], None, None)


@attempt("to kill the node's daemon", job=HIDDEN, login="EPERM", root=HIDDEN)
def _kill_daemon(facts: Facts) -> None:
    os.kill(facts["daemon"], signal.SIGKILL)


# --- Rights of root -------------------------------------------------------------------------------


@attempt("to become root", job="EPERM", login="EPERM")
def _setuid(_: Facts) -> None:
    os.setuid(0)


@attempt("to become another user", job="EPERM", login="EPERM")
def _setresuid(facts: Facts) -> None:
    os.setresuid(facts["other"], facts["other"], facts["other"])


@attempt("to join root's group", job="EPERM", login="EPERM")
def _setgroups(_: Facts) -> None:
    os.setgroups([0])


@attempt("to mount a tmpfs over /etc", job="EPERM", login="EPERM", root="EPERM")
def _mount_tmpfs(_: Facts) -> object:
    return _mount("none", "/etc", "tmpfs")


@attempt("to bind one's own file over /etc/passwd", job="EPERM", login="EPERM", root="EPERM")
def _mount_bind(facts: Facts) -> object:
    return _mount(facts["program"], "/etc/passwd", flags=MS_BIND)


@attempt(
    "to unmount /tmp, to find other jobs' files under it",
    job="EPERM",
    login="EPERM",
    root="EPERM",
)
def _unmount_tmp(_: Facts) -> object:
    return _umount("/tmp")


@attempt("to pivot the root", job="EPERM", login="EPERM", root="EPERM")
def _pivot_root(_: Facts) -> object:
    return _call("pivot_root", b"/tmp", b"/tmp")


@attempt("to chroot, the first step out of a chroot", job="EPERM", login="EPERM")
def _chroot(_: Facts) -> None:
    os.chroot("/tmp")


@attempt("to make a mount namespace", job="EPERM", login="EPERM", root="EPERM")
def _mount_namespace(_: Facts) -> object:
    return _unshare(CLONE_NEWNS)


@attempt("to make a device file of the machine's disk", job="EPERM", login="EPERM", root="EPERM")
def _mknod(facts: Facts) -> None:
    os.mknod(f"{facts['folder']}/disk-{os.getpid()}", stat.S_IFBLK | 0o666, DISK)


@attempt("to open a file by its inode number", job="EPERM", login="EPERM", root="EPERM")
def _open_by_handle(_: Facts) -> object:
    # Inode 2 is the root directory of an ext4 file system. A handle consists of its length, kind,
    # inode and generation (source: fs/exportfs in Linux).
    handle = struct.pack("IiII", 8, 1, 2, 0)
    return _call("open_by_handle_at", os.open("/home", os.O_RDONLY), handle, os.O_RDONLY)


@attempt("to load a kernel module", job="EPERM ENOSYS", login="EPERM ENOSYS", root="EPERM ENOSYS")
def _init_module(_: Facts) -> object:
    return _call("init_module", b"", 0, b"")


@attempt("to boot another kernel", job="EPERM ENOSYS", login="EPERM ENOSYS", root="EPERM ENOSYS")
def _kexec(_: Facts) -> object:
    return _call("kexec_load", 0, 0, None, 0)


@attempt("to reboot", job="EPERM", login="EPERM", root="EPERM")
def _reboot(_: Facts) -> object:
    # This command only changes what Ctrl-Alt-Del does; it does not reboot.
    return _call("reboot", 0xFEE1DEAD, 672274793, 0, None)


@attempt("to set the clock", job="EPERM", login="EPERM", root="EPERM")
def _clock(_: Facts) -> object:
    now = struct.pack("qq", 1_700_000_000, 0)
    return _call("clock_settime", 0, now)


@attempt("to rename the host", job="EPERM", login="EPERM", root="EPERM")
def _sethostname(_: Facts) -> None:
    socket.sethostname("elsewhere")


@attempt("to clear the kernel's log", job="EPERM", login="EPERM", root="EPERM")
def _clear_log(_: Facts) -> object:
    return _call("syslog", 5, None, 0)


@attempt("to swap to a file", job="EPERM ENOSYS", login="EPERM ENOSYS", root="EINVAL EPERM ENOSYS")
def _swapon(facts: Facts) -> object:
    return _call("swapon", facts["program"].encode(), 0)


@attempt(
    "to switch process accounting on", job="EPERM ENOSYS", login="EPERM ENOSYS", root="EPERM ENOSYS"
)
def _acct(facts: Facts) -> object:
    return _call("acct", facts["program"].encode())


@attempt(
    "to list the kernel's BPF programs",
    job="EPERM ENOSYS",
    login="EPERM ENOSYS",
    root="EPERM ENOSYS",
)
def _bpf(_: Facts) -> object:
    attributes = ctypes.create_string_buffer(120)
    return _call("bpf", 11, attributes, 120)  # BPF_PROG_GET_NEXT_ID


@attempt(
    "to profile a whole CPU",
    job="EACCES EPERM ENOSYS",
    login="EACCES EPERM ENOSYS",
    root="EACCES EPERM ENOSYS",
)
def _perf(_: Facts) -> object:
    attributes = struct.pack("IIQ", 1, 112, 0) + bytes(96)  # software: CPU clock
    return _call("perf_event_open", attributes, -1, 0, -1, 0)


@attempt(
    "to intercept other users' file accesses",
    job="EPERM ENOSYS",
    login="EPERM ENOSYS",
    root="EPERM ENOSYS",
)
def _fanotify(_: Facts) -> object:
    return _call("fanotify_init", 4, 0)  # FAN_CLASS_CONTENT


@attempt("to bypass seccomp filters with io_uring", job="EPERM", login="EPERM", root="EPERM")
def _io_uring(_: Facts) -> object:
    # 120 bytes: struct io_uring_params.
    return _call("io_uring_setup", 4, ctypes.create_string_buffer(120))


@attempt("to handle page faults of the kernel", job="EPERM", login="EPERM", root="EPERM")
def _userfaultfd(_: Facts) -> object:
    return _call("userfaultfd", 0)


# --- Keyrings: all pods of a machine share them ---------------------------------------------------

KEYCTL_GET_KEYRING_ID = 0
KEYCTL_JOIN_SESSION_KEYRING = 1
KEYCTL_GET_PERSISTENT = 22
SESSION_KEYRING, USER_KEYRING, PROCESS_KEYRING = -3, -4, -2
"""Special ids of keyrings, see keyctl(2)."""

for what, ring in {"session": SESSION_KEYRING, "user": USER_KEYRING}.items():

    @attempt(f"to add a key to the {what}'s keyring", job="EPERM", login="EPERM", root="EPERM")
    def _leave_key(_: Facts, ring: int = ring) -> object:
        return _call("add_key", b"user", b"escape", b"secret", 6, ring)

    @attempt(f"to get the id of the {what}'s keyring", job="EPERM", login="EPERM", root="EPERM")
    def _see_keyring(_: Facts, ring: int = ring) -> object:
        return _call("keyctl", KEYCTL_GET_KEYRING_ID, ring, 1)


@attempt("to join a keyring by its name", job="EPERM", login="EPERM", root="EPERM")
def _join_keyring(_: Facts) -> object:
    return _call("keyctl", KEYCTL_JOIN_SESSION_KEYRING, b"escape")


@attempt("to get a keyring that outlives the job", job="EPERM", login="EPERM", root="EPERM")
def _persistent_keyring(_: Facts) -> object:
    return _call("keyctl", KEYCTL_GET_PERSISTENT, -1, PROCESS_KEYRING)


@attempt("to request another user's key", job="EPERM", login="EPERM", root="EPERM")
def _request_key(_: Facts) -> object:
    return _call("request_key", b"user", b"escape", None, 0)


@attempt("to get real-time priority", job="EPERM", login="EPERM", root="EPERM")
def _realtime(_: Facts) -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))


@attempt(
    "to raise one's own priority", job="EACCES EPERM", login="EACCES EPERM", root="EACCES EPERM"
)
def _nice(_: Facts) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, -20)


@attempt("to listen to all packets", job="EPERM", login="EPERM", root="EPERM")
def _packet(_: Facts) -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


@attempt("to forge packets", job="EPERM", login="EPERM", root="EPERM")
def _raw(_: Facts) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)


@attempt("to change the network", job="EPERM", login="EPERM", root="EPERM")
def _interface(_: Facts) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = fcntl.ioctl(any_socket, 0x8913, struct.pack("16s16x", b"eth0"))  # SIOCGIFFLAGS
        return fcntl.ioctl(any_socket, 0x8914, flags)  # SIOCSIFFLAGS with the current flags


@attempt("to change the packet filter", job="EPERM", login="EPERM", root="EPERM")
def _filter(_: Facts) -> object:
    return _delete_filter()


def _delete_filter() -> object:
    """Delete the guard's table like `nft delete table inet slurmstack` (nfnetlink)."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        netlink.bind((0, 0))

        def message(kind: int, flags: int, family: int, subsystem: int, body: bytes = b"") -> bytes:
            payload = struct.pack(">BBH", family, 0, subsystem) + body
            return struct.pack("IHHII", 16 + len(payload), kind, flags, 1, 0) + payload

        name = b"slurmstack\0"
        attribute = struct.pack("HH", 4 + len(name), 1) + name + b"\0"
        delete = message(0xA02, 5, 1, 0, attribute)  # NFT_MSG_DELTABLE, NFPROTO_INET
        # NFNL_MSG_BATCH_BEGIN and _END, of NFNL_SUBSYS_NFTABLES
        netlink.send(message(16, 1, 0, 10) + delete + message(17, 1, 0, 10))
        answer = netlink.recv(4096)
        (kind,) = struct.unpack_from("H", answer, 4)
        (number,) = struct.unpack_from("i", answer, 16)
    if kind == 2 and number < 0:  # NLMSG_ERROR
        raise OSError(-number, os.strerror(-number))
    return "deleted"


# --- Files ----------------------------------------------------------------------------------------

SECRETS = (
    ("/etc/auth-secret/0", "cpu-0", "munge"),
    ("/run/munged/key/0.key", "cpu-0", "munge"),
    ("/etc/slurmstack/jwt/jwt_hs256.key", "controller", "slurmctld"),
    ("/etc/slurmstack/host_key/host_key", "login-0", "sshd"),
    ("/run/sshd/host_key", "login-0", "sshd"),
    ("/usr/sbin/slurmd", "cpu-0", "slurmd"),
    ("/mnt/jail/etc/passwd", "cpu-0", "slurmd"),
)
"""Files that the attempts below try to read and that exist outside the jail. Each has the pod and
the container in which it exists."""

for what, path in (
    ("the munge key", "/etc/auth-secret/0"),
    ("munged's copy of its key", "/run/munged/key/0.key"),
    ("slurmctld's JWT key", "/etc/slurmstack/jwt/jwt_hs256.key"),
    ("the service account's token", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
    ("the host key", "/etc/slurmstack/host_key/host_key"),
    ("sshd's copy of the host key", "/run/sshd/host_key"),
    ("the machine's memory", "/dev/mem"),
    ("the kernel's log", "/dev/kmsg"),
    ("the machine's disk", "/dev/vda"),
    ("slurmd's program", "/usr/sbin/slurmd"),
    ("other jobs' directories", "/var/spool/slurmstack/slurm-jobs"),
    ("the jail from outside", "/mnt/jail/etc/passwd"),
):
    attempt(f"to read {what}", job=NO_FILE, login=NO_FILE, root=NO_FILE)(_reading(path))
for what, path in (
    ("the users' password hashes", "/etc/shadow"),
    ("root's home", "/root/.bashrc"),
    ("munge's usual key", "/etc/munge/munge.key"),
):
    attempt(f"to read {what}", job="EACCES ENOENT EPERM", login="EACCES ENOENT EPERM")(
        _reading(path)
    )
for what, path in (
    ("all of the machine's memory", "/proc/kcore"),
    ("the kernel's messages", "/proc/kmsg"),
):
    refusal = "EACCES ENOENT EPERM"
    attempt(f"to read {what}", job=refusal, login=refusal, root=refusal)(_reading(path))


@attempt("to read another user's file", job="EACCES", login="EACCES")
def _read_other(facts: Facts) -> object:
    return _read(f"{facts['others']}/secret")


@attempt("to read another job's script", job="EACCES")
def _read_script(facts: Facts) -> object:
    return _read(f"/var/spool/slurmd/job{facts['job']:05}/slurm_script")


@attempt("to read slurmd's credentials", job="EACCES")
def _read_credentials(_: Facts) -> object:
    return _read("/var/spool/slurmd/cred_state")


for what, path, refusal in (
    ("the users", "/etc/passwd", "EACCES"),
    ("the preload list", "/etc/ld.so.preload", "EACCES ENOENT"),
    ("the name services", "/etc/nsswitch.conf", "EACCES"),
    ("the script of every login", "/etc/profile", "EACCES"),
    ("srun", "/usr/bin/srun", "EACCES EROFS"),
    ("the plugin", "/usr/lib/slurmstack/chroot.so", "EACCES EROFS"),
    ("Slurm's library", "/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so", "EACCES EROFS"),
    ("the stack's users", "/var/lib/extrausers/passwd", "EACCES EROFS"),
    ("the host names", "/etc/hosts", "EACCES EROFS"),
    ("the name servers", "/etc/resolv.conf", "EACCES EROFS"),
    ("the OOM score of process 1", "/proc/1/oom_score_adj", "EACCES"),
    ("the pod's termination message", "/dev/termination-log", "ENOENT"),
):
    attempt(f"to write {what}: {path}", job=refusal, login=refusal)(_writing(path))
for what, path, refusal in (
    ("the machine's core pattern", "/proc/sys/kernel/core_pattern", "EACCES EROFS"),
    ("the machine's module loader", "/proc/sys/kernel/modprobe", "EACCES EROFS ENOENT"),
    ("the machine's memory limits", "/proc/sys/vm/overcommit_memory", "EACCES EROFS"),
    ("the SysRq trigger", "/proc/sysrq-trigger", "EACCES EROFS ENOENT"),
    ("the uevent helper", "/sys/kernel/uevent_helper", "EACCES EROFS ENOENT"),
    ("the machine's power state", "/sys/power/state", "EACCES EROFS ENOENT"),
):
    attempt(f"to write {what}: {path}", job=refusal, login=refusal, root=refusal)(_writing(path))


@attempt("to write Slurm's configuration", job="EACCES EROFS", login="EACCES EROFS")
def _write_configuration(facts: Facts) -> None:
    _write(facts["configuration"], "")


@attempt(
    "to create a cgroup, in order to leave the current one",
    job="EACCES EROFS",
    login="EACCES EROFS",
    root="EACCES EROFS",
)
def _make_cgroup(_: Facts) -> object:
    cgroups = [top for top, _, names in os.walk("/sys/fs/cgroup") if "cgroup.procs" in names]
    assert cgroups, "no cgroup is visible"
    for top in cgroups:
        try:
            Path(f"{top}/escaped").mkdir()
        except OSError as error:
            last = error
        else:
            return f"{top}/escaped"
    raise last


@attempt(
    "to move to another cgroup",
    job="EACCES EROFS",
    login="EACCES EROFS",
    root="EACCES EROFS",
)
def _move_to_cgroup(_: Facts) -> object:
    cgroups = [top for top, _, names in os.walk("/sys/fs/cgroup") if "cgroup.procs" in names]
    for top in cgroups:
        try:
            _write(f"{top}/cgroup.procs", str(os.getpid()))
        except OSError as error:
            last = error
        else:
            return top
    raise last


for path in ("/tmp", "/var/tmp", "/dev", "/dev/shm", "/proc", "/home", "/var/spool/slurmd"):
    attempt(
        f"to replace {path}",
        job="EACCES EBUSY",
        login="EACCES EBUSY",
    )(_replacing(path))


@attempt("to create a link in /dev", job="EACCES", login="EACCES")
def _link_device(facts: Facts) -> None:
    Path(f"/dev/link-{os.getpid()}").symlink_to(facts["folder"])


@attempt("to replace munge's socket", job="EROFS EACCES", login="EROFS EACCES")
def _replace_munge(_: Facts) -> None:
    Path("/run/munge/munge.socket.2").unlink()


@attempt("to replace a step's socket", job="EROFS")
def _replace_step(facts: Facts) -> None:
    Path(f"/var/spool/slurmd/{facts['node']}_{facts['job']}.4294967291").unlink()


@attempt("to create a file in slurmd's spool directory", job="EROFS", root="EROFS")
def _leave_in_spool(_: Facts) -> object:
    return os.open(f"/var/spool/slurmd/left-{os.getpid()}", os.O_CREAT | os.O_WRONLY)


@attempt("to change slurmd's plugstack.conf", job="EACCES", root="EROFS")
def _write_plugstack(_: Facts) -> object:
    return os.open("/var/spool/slurmd/conf-cache/plugstack.conf", os.O_APPEND | os.O_WRONLY)


@attempt("to open the lock of the job's process 1", job="EACCES", root="EACCES")
def _open_keepers_lock(_: Facts) -> object:
    return os.open("/proc/1/fd/0", os.O_RDWR)


@attempt("to remove another user's files", job="EACCES EPERM", login="EACCES EPERM")
def _remove_others(facts: Facts) -> object:
    return Path(facts["others"]).rename(f"{facts['folder']}/taken")


@attempt("to hard-link the users' password hashes", job="EPERM", login="EPERM")
def _link_shadow(facts: Facts) -> None:
    os.link("/etc/shadow", f"{facts['folder']}/shadow-{os.getpid()}")


@attempt("to hard-link another user's open file", job="EPERM", login="EPERM")
def _link_other(facts: Facts) -> None:
    os.link(facts["public"], f"{facts['folder']}/public-{os.getpid()}")


@attempt("to hard-link a file out of the job's own /tmp", job="EXDEV")
def _link_tmp(facts: Facts) -> None:
    path = f"/tmp/link-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    os.link(path, f"/var/tmp/link-{os.getpid()}")


# --- User namespaces ------------------------------------------------------------------------------
# A login session is in a chroot and cannot create a user namespace. A job can create a user
# namespace, but gains no rights outside it.

CHROOTED = "EPERM"


@attempt("to create a user namespace on a login node", login=CHROOTED)
def _user_namespace(_: Facts) -> object:
    return _unshare(CLONE_NEWUSER)


for path in ("/tmp", "/var/tmp", "/dev/shm", "/dev", "/proc", "/var/spool/slurmd", "/run/munge"):

    @attempt(f"to unmount {path}, as root of a user namespace", job="EINVAL")
    def _unmount(_: Facts, path: str = path) -> object:
        _become_root_of_namespaces(CLONE_NEWNS)
        return _umount(path)


@attempt("to remount a read-only mount, as root of a user namespace", job="EPERM")
def _remount(_: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNS)
    return _mount("none", "/usr/lib/slurmstack", flags=MS_REMOUNT | MS_BIND)


@attempt("to see the node's processes, as root of a user namespace", job="EPERM")
def _mount_proc(_: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNS)
    return _mount("proc", "/mnt", "proc")


@attempt("to mount the machine's disk, as root of a user namespace", job="EPERM ENODEV ENOENT")
def _mount_disk(_: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNS)
    return _mount("/dev/vda", "/mnt", "ext4", MS_RDONLY)


@attempt("to make a device file, as root of a user namespace", job="EPERM")
def _mknod_inside(_: Facts) -> None:
    _become_root_of_namespaces(CLONE_NEWNS)
    _mount("none", "/mnt", "tmpfs")
    os.mknod("/mnt/disk", stat.S_IFBLK | 0o666, DISK)


@attempt("to read root's files, as root of a user namespace", job="EACCES")
def _shadow_inside(_: Facts) -> object:
    _become_root_of_namespaces()
    return _read("/etc/shadow")


@attempt("to set the machine's core pattern, as root of a user namespace", job="EACCES EPERM")
def _core_pattern_inside(_: Facts) -> None:
    _become_root_of_namespaces(CLONE_NEWNS)
    _write("/proc/sys/kernel/core_pattern", "")


@attempt("to change owners, as root of a user namespace", job="EPERM EINVAL")
def _chown_inside(facts: Facts) -> None:
    _become_root_of_namespaces()
    os.chown(facts["public"], 0, 0)


@attempt("to map other users into a user namespace", job="EPERM")
def _map_others(facts: Facts) -> None:
    _unshare(CLONE_NEWUSER)
    _write("/proc/self/uid_map", f"0 {facts['other']} 1")


@attempt("to kill process 1, as root of a user namespace", job="EPERM")
def _kill_inside(_: Facts) -> None:
    _become_root_of_namespaces()
    os.kill(1, signal.SIGKILL)


@attempt("to join process 1's namespaces, as root of a user namespace", job="EACCES EPERM")
def _setns_inside(_: Facts) -> object:
    _become_root_of_namespaces()
    return _call("setns", _call("pidfd_open", 1, 0), CLONE_NEWNS)


@attempt("to change the packet filter, as root of a user namespace", job="EPERM")
def _filter_inside(_: Facts) -> object:
    _become_root_of_namespaces()
    return _delete_filter()


@attempt("to create a packet filter in a new network namespace", job="EPERM")
def _own_filter(_: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNET)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as nfnetlink:
        nfnetlink.bind((0, 0))
        return "nf_tables answers"


# The numbers are from the kernel's headers ip_tables.h, arp_tables.h and ebtables.h.
for table, option in {"iptables": 64, "arptables": 96, "ebtables": 128}.items():

    @attempt(f"to replace a table of {table} in a new network namespace", job="EPERM")
    def _own_table(_: Facts, option: int = option) -> object:
        _become_root_of_namespaces(CLONE_NEWNET)
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            return raw.setsockopt(socket.IPPROTO_IP, option, bytes(96))


# The numbers are from asm-generic/socket.h. Python defines only SO_BINDTODEVICE.
for name, number in {"SO_BINDTODEVICE": 25, "SO_INCOMING_CPU": 49, "SO_BINDTOIFINDEX": 62}.items():

    @attempt(
        f"to receive packets for another user's port, with {name}",
        job="EPERM",
        login="EPERM",
        root="EPERM",
    )
    def _precedence(_: Facts, number: int = number) -> object:
        with socket.socket(socket.AF_INET6) as port:
            return port.setsockopt(socket.SOL_SOCKET, number, 1)


@attempt("to open slurmd's port over IPv6", job="EADDRINUSE", root="EADDRINUSE")
def _port_of_slurmd(_: Facts) -> object:
    with socket.socket(socket.AF_INET6) as port:
        port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            port.setsockopt(socket.SOL_SOCKET, option, 1)
        port.bind(("::", 6818))
        return "open"


@attempt("to bypass the network with a vsock", job="EPERM", login="EPERM", root="EPERM")
def _vsock(_: Facts) -> object:
    # The attempt opens no connection: the kernel must already refuse to create the socket.
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@attempt("to climb out of a second chroot, as root of a user namespace", job=NO_FILE)
def _climb(facts: Facts) -> object:
    """The classic way out of a chroot leads only to the jail's root."""
    _become_root_of_namespaces(CLONE_NEWNS)
    outside = os.open("/", os.O_RDONLY)
    os.chroot(facts["folder"])
    os.fchdir(outside)
    for _ in range(50):
        os.chdir("..")
    assert Path("etc/passwd").exists(), "the directory is not a root directory"
    os.chroot(".")
    return _read("/usr/sbin/slurmd")


@attempt("to pivot the root, as root of a user namespace", job=NO_FILE)
def _pivot_inside(_: Facts) -> object:
    """After pivot_root, the old root is a directory of the new root, and it is only the jail."""
    _become_root_of_namespaces(CLONE_NEWNS)
    _mount("none", "/mnt", "tmpfs")
    Path("/mnt/old").mkdir()
    os.chdir("/mnt")
    _call("pivot_root", b".", b"old")
    assert Path("/old/etc/passwd").exists(), "the directory is not a root directory"
    return _read("/old/usr/sbin/slurmd")


@attempt("to leave the cgroup, as root of a user namespace", job="EACCES EPERM EROFS EBUSY EINVAL")
def _cgroup_inside(_: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNS | CLONE_NEWCGROUP)
    kinds = (("cgroup2", ""), ("cgroup", "memory"), ("cgroup", "devices"))
    for kind, data in kinds:
        try:
            _mount("none", "/mnt", kind, 0, data)
            Path("/mnt/escaped").mkdir()
        except OSError as error:
            last = error
        else:
            return kind
    raise last


# --- The network ----------------------------------------------------------------------------------

REFUSED = "ECONNREFUSED"


def _connect(address: tuple[str, int]) -> str:
    with socket.create_connection(address, 10):
        return f"{address} answered"


def _connecting(what: str) -> Callable[[Facts], object]:
    return lambda facts: _connect((facts[what][0], facts[what][1]))


for what in ("metadata", "api_service", "api_server", "kubelet", "kubelet_of_another", "storage"):
    attempt(f"to reach the infrastructure: {what}", job=REFUSED, login=REFUSED)(_connecting(what))

    @attempt(f"to reach the infrastructure, as root of a user namespace: {what}", job=REFUSED)
    def _reach_inside(facts: Facts, what: str = what) -> object:
        _become_root_of_namespaces()
        return _connect((facts[what][0], facts[what][1]))


@attempt("to reach Kubernetes' API by its name", job=REFUSED, login=REFUSED)
def _reach_by_name(_: Facts) -> object:
    return _connect(("kubernetes.default.svc.cluster.local", 443))


@attempt("to reach the metadata over UDP", job="EPERM ECONNREFUSED", login="EPERM ECONNREFUSED")
def _reach_by_udp(facts: Facts) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        any_socket.settimeout(5)
        any_socket.connect((facts["metadata"][0], 80))
        any_socket.send(b"?")
        return any_socket.recv(1)


@attempt("to reach the metadata from a network namespace", job="ENETUNREACH")
def _reach_from_namespace(facts: Facts) -> object:
    _become_root_of_namespaces(CLONE_NEWNET)
    return _connect((facts["metadata"][0], 80))


# --- The program ----------------------------------------------------------------------------------


def _outcome(run: Callable[[Facts], object], facts: Facts) -> str:
    try:
        return f"succeeded: {run(facts)!r}"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    except Exception as error:
        return f"failed: {error!r}"


def _fork(avoided: set[int]) -> int:
    """Fork like `os.fork`, but never give the child one of the process ids in `avoided`.

    A job numbers its processes from 1, so a child could get the id that the daemon has on the node.
    The child would then attack itself instead of the daemon.
    """
    while True:
        child = os.fork()
        if child == 0 and os.getpid() in avoided:
            os._exit(0)
        if child not in avoided:
            return child
        os.waitpid(child, 0)


def _in_process(run: Callable[[Facts], object], facts: Facts) -> str:
    """Run an attempt in a child process, so that it cannot affect the next; return the outcome."""
    reading, writing = os.pipe()
    child = _fork({facts["daemon"], facts["victim"]})
    if child == 0:
        signal.alarm(TIMEOUT)
        os.write(writing, _outcome(run, facts).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123  # a descriptor
        output = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return output or f"failed: status {status}"


def main(place: str, facts: Facts) -> None:
    tried = {name: a.run for name, a in ATTEMPTS.items() if place in a.refusals}
    print(json.dumps({name: _in_process(run, facts) for name, run in tried.items()}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
