"""Check that this process may restrict the devices of a cgroup (cgroups version 2).

To restrict devices, Slurm loads a BPF program into the kernel (see bpf(2)). If this fails, Slurm
continues and logs nothing. Therefore, this module tries to load such a program before slurmd
starts.
"""

import ctypes
import os
import struct
from typing import Final

_SYSTEM_CALL: Final = 321
"""Number of the system call bpf on x86-64, the architecture of all images."""
_LOAD: Final = 5
_CGROUP_DEVICE: Final = 15
"""BPF_PROG_LOAD and BPF_PROG_TYPE_CGROUP_DEVICE of linux/bpf.h."""
_ALLOW: Final = struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""Instructions of a BPF program that returns 1, which allows every access."""


def load_guard() -> None:
    """Load and unload a BPF program that allows all devices. Raises OSError if this fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    program, licence = ctypes.create_string_buffer(_ALLOW), ctypes.create_string_buffer(b"GPL")
    given = struct.pack(
        "<IIQQ",
        _CGROUP_DEVICE,
        len(_ALLOW) // 8,
        ctypes.addressof(program),
        ctypes.addressof(licence),
    )
    attributes = ctypes.create_string_buffer(given.ljust(128, b"\0"), 128)
    found = libc.syscall(_SYSTEM_CALL, _LOAD, attributes, len(attributes))
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    os.close(found)
