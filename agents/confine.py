"""Starts a daemon without the system calls that no job and no session needs.

`python3 -I confine.py [--allow CALL ...] COMMAND ...` runs as root with SYS_ADMIN and starts slurmd
and sshd. Their jobs and sessions inherit the filter, and nothing lifts it. Container runtimes have
profiles of the kind. But theirs refuse pivot_root(2), by which the SPANK plugin and users' own
containers exchange their root, and they differ: some allow keyrings.

A refused call fails with EPERM. One that libseccomp does not know yet fails with ENOSYS, so that
programs do without.
"""

import argparse
import errno
import os
from collections.abc import Collection, Mapping
from typing import Any, Final

REFUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "keyrings outlive jobs, and all pods of a machine have the same": (
        *("add_key", "keyctl", "request_key"),
    ),
    "what is called by io_uring passes no filter": (
        *("io_uring_enter", "io_uring_register", "io_uring_setup"),
    ),
    "programs within the kernel": ("bpf",),
    "page faults that a program handles make races in the kernel easy to win": ("userfaultfd",),
    "files by their numbers, past all directories": ("open_by_handle_at",),
    "watching or delaying others' access to files": ("fanotify_init", "fanotify_mark"),
    "the machine's own matters": (
        *("acct", "clock_settime", "delete_module", "finit_module", "init_module", "ioperm"),
        *("iopl", "kexec_file_load", "kexec_load", "reboot", "settimeofday"),
        *("swapoff", "swapon"),
    ),
    "calls that nothing uses any more": (
        *("_sysctl", "create_module", "get_kernel_syms", "lookup_dcookie", "nfsservctl"),
        *("query_module", "sysfs", "uselib", "ustat", "vm86", "vm86old", "vserver"),
    ),
}
"""Names of system calls by why they are refused."""
_NUMBERS: Final = range(1024)
"""All system calls have numbers in it (arch/x86/entry/syscalls)."""
_INT: Final = 0xFFFFFFFF
"""What counts of an argument that the kernel takes as an int: a caller chooses the other bits."""
_AF_NETLINK: Final = 16
_FAMILIES: Final = (1, 2, 10, _AF_NETLINK)
"""Families of sockets: AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK (linux/socket.h)."""
_NETLINK_NETFILTER: Final = 12
_OPTIONS: Final[Mapping[int, tuple[int, ...]]] = {
    # SOL_SOCKET: SO_BINDTODEVICE, SO_INCOMING_CPU and SO_BINDTOIFINDEX give a socket of IPv6
    # precedence over another user's listener on the same port of IPv4.
    1: (25, 49, 62),
    # IPPROTO_IP: replace a table of ip_tables, arp_tables or ebtables, and set its counters.
    0: (64, 65, 96, 97, 128, 129),
    # IPPROTO_IPV6: the same for ip6_tables.
    41: (64, 65),
}
"""Options of sockets that are refused, by their levels (asm-generic/socket.h, linux/netfilter*)."""


def confine(allowed: Collection[str] = ()) -> None:
    """Filters the system calls of this process and all its descendants. Raises OSError.

    Those of `REFUSED` that are `allowed` by name are not refused.

    The filters add up. Programs of 32 bits do not run: their system calls are others.
    """
    import seccomp  # type: ignore[import-not-found]  # of Debian: the images have it

    for found in (_without_refused(seccomp, allowed), _without_unknown(seccomp)):
        # Set-user-ID programs count on login nodes; in jobs the plugin forbids new privileges.
        found.set_attr(seccomp.Attr.CTL_NNP, 0)
        # Steps of a binary search instead of one for each call.
        found.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
        found.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.ERRNO(errno.ENOSYS))
        found.load()


def _without_refused(seccomp: Any, allowed: Collection[str]) -> Any:
    found = seccomp.SyscallFilter(seccomp.ALLOW)
    no = seccomp.ERRNO(errno.EPERM)
    for name in sorted({name for names in REFUSED.values() for name in names} - {*allowed}):
        found.add_rule(no, name)

    def argument(number: int, value: int) -> Any:
        return seccomp.Arg(number, seccomp.MASKED_EQ, _INT, value)

    # A socket of another family passes the guard by, as one of vsock, which leads to the machine's
    # host, or has the kernel load a module that few have ever looked at.
    for call in ("socket", "socketpair"):
        for family in sorted({*range(_AF_NETLINK)} - {*_FAMILIES}):
            found.add_rule(no, call, argument(0, family))
        found.add_rule(no, call, seccomp.Arg(0, seccomp.GT, _AF_NETLINK))
    # Root of a user namespace may set the packet filter of a network of its own. Nobody needs that
    # here, and its many faults in the kernel have been ways out.
    found.add_rule(no, "socket", argument(0, _AF_NETLINK), argument(2, _NETLINK_NETFILTER))
    for level, options in _OPTIONS.items():
        for option in options:
            found.add_rule(no, "setsockopt", argument(1, level), argument(2, option))
    return found


def _without_unknown(seccomp: Any) -> Any:
    found = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    for number in _NUMBERS:
        try:
            name = seccomp.resolve_syscall(seccomp.Arch(), number)
        except ValueError:
            continue
        if name:
            found.add_rule(seccomp.ALLOW, number)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--allow", action="append", default=[], metavar="CALL")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    confine(given.allow)
    os.execvp(given.command[0], given.command)  # noqa: S606  # the daemon


if __name__ == "__main__":
    main()
