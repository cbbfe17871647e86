"""Whether this process may guard the devices of a group of processes, on version 2 of cgroups.

Slurm does so by a program within the kernel (bpf(2)), and goes on without a word where it cannot.
"""

import ctypes
import os
import struct
from typing import Final

_SYSTEM_CALL: Final = 321
"""bpf on x86-64, which all images are for."""
_LOAD: Final = 5
_CGROUP_DEVICE: Final = 15
"""A command and a kind of program (linux/bpf.h)."""
_ALLOW: Final = struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0)
"""Two instructions: return 1."""


def load_guard() -> None:
    """Load a program that allows all devices, and drop it. Raises OSError."""
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
