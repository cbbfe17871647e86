"""Commands in containers through shells that stay open.

Docker starts a dozen processes for each `exec`, which cost more than most commands do.
"""

import shlex
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from docker.models.containers import Container

_MARK = b"\0the command has ended with "
"""Nothing that a test runs prints a byte 0 and these words."""
# Commands come one after the other, each with a byte 0 at its end. Each has a process group of its
# own, so that signals to that leave the shell alone.
_LOOP = r"""
set -m
while IFS= read -r -d '' command; do
  printf '\0'
  bash -c "$command" </dev/null 2>&1
  printf '\0the command has ended with %s\n' $?
done
"""
_HEADER = struct.Struct(">BxxxL")
"""Of each piece that Docker sends: its stream, and the length in bytes."""


class ShellEnded(AssertionError):  # noqa: N818  # said of a test, as other failures
    """The shell of a container ended before the command did."""


class _Shell:
    """One bash in a container that runs commands for a user, one at a time."""

    def __init__(self, container: Container, user: str) -> None:
        assert container.client
        api = container.client.api
        # What the shell itself says, as that a command was killed, is not for the test.
        loop = ["bash", "-c", _LOOP]
        exec_id = api.exec_create(container.id, loop, stdin=True, stderr=False, user=user)["Id"]
        self._stream = cast(Any, api.exec_start(exec_id, socket=True))
        self._socket: socket.socket = self._stream._sock
        self._socket.settimeout(None)
        self._pieces = self._received()

    def run(self, command: str) -> tuple[int, str] | None:
        """Exit code and output; None where the shell had ended before.

        Raises ShellEnded where it ends meanwhile.
        """
        try:
            self._socket.sendall(command.encode() + b"\0")
        except OSError:
            return None
        output = b""
        for piece in self._pieces:
            output += piece
            head, found, code = output.rpartition(_MARK)
            if found and code.endswith(b"\n"):
                return int(code), head.removeprefix(b"\0").decode(errors="replace")
        if not output:
            return None
        raise ShellEnded(f"{command}: the shell ended, after {output!r}")

    def close(self) -> None:
        self._stream.close()

    def _received(self) -> Iterator[bytes]:
        while header := self._exactly(_HEADER.size):
            _, length = _HEADER.unpack(header)
            yield self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        """So many bytes, or b"" at the end."""
        received = b""
        while len(received) < length:
            try:
                piece = self._socket.recv(length - len(received))
            except ConnectionError:
                return b""
            if not piece:
                return b""
            received += piece
        return received


_idle: dict[tuple[str, str], list[_Shell]] = defaultdict(list)
"""By container and user. While a thread uses a shell, another opens one of its own."""


def run(
    container: Container,
    command: str | Sequence[str],
    user: str = "root",
    *,
    environment: Mapping[str, str] | None = None,
    workdir: str | None = None,
) -> tuple[int, str]:
    """Run a shell command, or a program with its arguments, as `docker exec` would.

    Returns exit code and output, errors among it. What runs in the background keeps running.
    Raises ShellEnded where the test ends the shell with it.
    """
    script = command if isinstance(command, str) else shlex.join(command)
    prefix = [f"export {name}={shlex.quote(text)}; " for name, text in (environment or {}).items()]
    prefix += [f"cd {shlex.quote(workdir)} && "] if workdir else []
    shells = _idle[str(container.id), user]
    text = "".join(prefix) + script
    while shells:
        # One that is idle may have ended with what a test has killed.
        shell = shells.pop()
        if (answer := shell.run(text)) is not None:
            shells.append(shell)
            return answer
    shell = _Shell(container, user)
    answer = shell.run(text)
    if answer is None:
        raise ShellEnded(f"{container.name}: no shell for {user}")
    shells.append(shell)
    return answer


def close(container_id: str) -> None:
    """Close the shells of a container that goes."""
    for key in [key for key in _idle if key[0] == container_id]:
        for shell in _idle.pop(key):
            shell.close()
