"""Start a daemon with a seccomp filter that refuses system calls which no job needs.

`python3 -I confine.py [--allow CALL ...] COMMAND ...` runs as root with SYS_ADMIN and starts slurmd
and sshd. Their jobs and sessions inherit the filter, and nothing can remove it.

The seccomp profiles of container runtimes cannot replace this filter. They refuse pivot_root(2),
which the SPANK plugin and users' own containers need. The profiles also differ from runtime to
runtime: some allow keyrings.

A refused call fails with EPERM. A call that libseccomp does not know yet fails with ENOSYS, so that
programs work without it.
"""

import argparse
import errno
import os
from collections.abc import Collection, Mapping
from typing import Any, Final

REFUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "keyrings outlive jobs, and all pods of a machine share them": (
        *("add_key", "keyctl", "request_key"),
    ),
    "calls through io_uring bypass seccomp filters": (
        *("io_uring_enter", "io_uring_register", "io_uring_setup"),
    ),
    "the call loads programs into the kernel": ("bpf",),
    "a program that handles page faults can exploit race conditions in the kernel": (
        "userfaultfd",
    ),
    "the call opens files whose directories the user may not enter": ("open_by_handle_at",),
    "the call shows or delays other users' access to files": ("fanotify_init", "fanotify_mark"),
    "the call changes the whole machine": (
        *("acct", "clock_settime", "delete_module", "finit_module", "init_module", "ioperm"),
        *("iopl", "kexec_file_load", "kexec_load", "reboot", "settimeofday"),
        *("swapoff", "swapon"),
    ),
    "obsolete calls": (
        *("_sysctl", "create_module", "get_kernel_syms", "lookup_dcookie", "nfsservctl"),
        *("query_module", "sysfs", "uselib", "ustat", "vm86", "vm86old", "vserver"),
    ),
}
"""Refused system calls, by reason."""
_NUMBERS: Final = range(1024)
"""Range that contains the numbers of all system calls (arch/x86/entry/syscalls)."""
_INT: Final = 0xFFFFFFFF
"""Bits of an argument that the kernel reads as an int. The kernel ignores the other bits, so the
filter must ignore them too."""
_AF_NETLINK: Final = 16
_FAMILIES: Final = (1, 2, 10, _AF_NETLINK)
"""Permitted families of sockets: AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK (source:
linux/socket.h)."""
_NETLINK_NETFILTER: Final = 12
_OPTIONS: Final[Mapping[int, tuple[int, ...]]] = {
    # SOL_SOCKET: SO_BINDTODEVICE, SO_INCOMING_CPU and SO_BINDTOIFINDEX give an IPv6 socket
    # precedence over another user's IPv4 listener on the same port.
    1: (25, 49, 62),
    # IPPROTO_IP: replace a table of ip_tables, arp_tables or ebtables, and set its counters.
    0: (64, 65, 96, 97, 128, 129),
    # IPPROTO_IPV6: the same for ip6_tables.
    41: (64, 65),
}
"""Refused options of sockets, by level (asm-generic/socket.h, linux/netfilter*)."""


def confine(allowed: Collection[str] = ()) -> None:
    """Filter the system calls of this process and all its descendants. Raises OSError.

    `allowed` lists calls of `REFUSED` that stay permitted.

    The kernel permits a call only if all filters of the process permit it. 32-bit programs do not
    run, because the filters refuse the system calls of other architectures.
    """
    import seccomp  # type: ignore[import-not-found]  # Debian's package, in the images

    for found in (_without_refused(seccomp, allowed), _without_unknown(seccomp)):
        # Do not set no_new_privs: login nodes need set-user-ID programs. In jobs, the SPANK plugin
        # sets no_new_privs.
        found.set_attr(seccomp.Attr.CTL_NNP, 0)
        # Use a binary search instead of one comparison for each call.
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

    # Sockets of other families bypass the packet filter (images/guard): vsock, for example, reaches
    # the hypervisor. Other families make the kernel load modules that few people have reviewed.
    for call in ("socket", "socketpair"):
        for family in sorted({*range(_AF_NETLINK)} - {*_FAMILIES}):
            found.add_rule(no, call, argument(0, family))
        found.add_rule(no, call, seccomp.Arg(0, seccomp.GT, _AF_NETLINK))
    # Root of a user namespace may configure the packet filter of its own network namespace. No job
    # needs this, and many bugs in that kernel code have let programs escape from containers.
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
