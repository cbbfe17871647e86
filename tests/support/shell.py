"""One SSH connection to each stack's login node, which all commands of the tests share.

A new connection for each command costs a quarter of a second of CPU time. A session in an open
connection costs a tenth of this time; see ControlMaster in ssh_config(5).
"""

import atexit
import subprocess
import tempfile
import threading
import time
from pathlib import Path

_START = 15
"""Seconds that ssh waits for the shared connection before it opens its own."""
_ALIVE = ("-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=5")
"""With these options, ssh closes a connection after 15 seconds without an answer."""
_masters: dict[tuple[Path, str], subprocess.Popen[bytes]] = {}
_lock = threading.Lock()
_sockets = tempfile.TemporaryDirectory(prefix="ssh-")
"""Folder of sockets with a short path, because paths have at most 107 characters (unix(7))."""


def command(config: Path, user: str, *options: str, shared: bool = True) -> list[str | Path]:
    """Return the ssh command for a stack's `ssh_config`; the caller appends a script.

    Without a shared connection, ssh opens a connection for this command only.
    """
    with _lock:
        via = _socket(config, user) if shared else None
    control = ("-o", f"ControlPath={via}") if via else ()
    return ["ssh", "-l", user, *control, *options, "-F", config, "login"]


def is_lost(answer: subprocess.CompletedProcess[str]) -> bool:
    """Return whether the shared connection was lost before the command started."""
    return answer.returncode == 255 and "mux_client_request_session" in answer.stderr


def forget(config: Path) -> None:
    """Close the connections to a stack."""
    with _lock:
        for key in [key for key in _masters if key[0] == config]:
            _end(_masters.pop(key))


def _socket(config: Path, user: str) -> Path | None:
    socket = Path(_sockets.name) / f"{config.parent.name}-{user}"
    master = _masters.get((config, user))
    if master is None or master.poll() is not None:
        socket.unlink(missing_ok=True)
        control = ("-o", "ControlMaster=yes", "-o", f"ControlPath={socket}")
        master = subprocess.Popen(
            ["ssh", "-N", "-l", user, *control, *_ALIVE, "-F", config, "login"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _masters[config, user] = master
        deadline = time.monotonic() + _START
        while not socket.exists() and master.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    return socket if socket.exists() else None


def _end(master: subprocess.Popen[bytes]) -> None:
    master.terminate()
    master.wait()


@atexit.register
def _end_all() -> None:
    for master in _masters.values():
        _end(master)
