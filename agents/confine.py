"""Starts a daemon without the system calls that no job and no session needs.

`python3 -I confine.py COMMAND ...` runs as root with SYS_ADMIN and starts slurmd and sshd. Their
jobs and sessions inherit the filter, and nothing lifts it. Container runtimes have profiles of the
kind. But theirs refuse pivot_root(2), by which the SPANK plugin and users' own containers exchange
their root, and they differ: some allow keyrings.

A refused call fails with EPERM. One that libseccomp does not know yet fails with ENOSYS, so that
programs do without.
"""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

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
        *(
            "acct",
            "clock_settime",
            "delete_module",
            "finit_module",
            "init_module",
            "ioperm",
            "iopl",
        ),
        *("kexec_file_load", "kexec_load", "reboot", "settimeofday", "swapoff", "swapon"),
    ),
    "calls that nothing uses any more": (
        *("_sysctl", "create_module", "get_kernel_syms", "lookup_dcookie", "nfsservctl"),
        *("query_module", "sysfs", "uselib", "ustat", "vm86", "vm86old", "vserver"),
    ),
}
"""Names of system calls by why they are refused."""
_NUMBERS: Final = range(1024)
"""All system calls have numbers in it (arch/x86/entry/syscalls)."""


def confine() -> None:
    """Filters the system calls of this process and all its descendants. Raises OSError."""
    import seccomp  # type: ignore[import-not-found]  # of Debian: the images have it

    found = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    # Set-user-ID programs count on login nodes; in jobs the plugin forbids new privileges.
    found.set_attr(seccomp.Attr.CTL_NNP, 0)
    # Steps of a binary search instead of one for each call.
    found.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
    found.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.ERRNO(errno.ENOSYS))
    architectures = [seccomp.Arch()]
    if seccomp.Arch() == seccomp.Arch.X86_64:
        # Programs of 32 bits.
        architectures.append(seccomp.Arch(seccomp.Arch.X86))
        found.add_arch(architectures[-1])
    refused = {name for names in REFUSED.values() for name in names}
    for name in sorted({name for each in architectures for name in _known(seccomp, each)}):
        action = seccomp.ERRNO(errno.EPERM) if name in refused else seccomp.ALLOW
        found.add_rule(action, name)
    found.load()


def _known(seccomp: object, architecture: object) -> Iterator[str]:
    """Names of the system calls that libseccomp knows of an architecture."""
    for number in _NUMBERS:
        try:
            name = seccomp.resolve_syscall(architecture, number)  # type: ignore[attr-defined]
        except ValueError:
            continue
        if name:
            yield name.decode() if isinstance(name, bytes) else name


if __name__ == "__main__":
    confine()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # the daemon
