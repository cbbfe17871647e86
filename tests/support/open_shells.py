"""Run commands in containers through shells that stay open.

A `docker exec` for each command would cost more CPU time than most of the commands.
"""

import shlex
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from docker.models.containers import Container

_MARK = b"\0the command has ended with "
"""End of a command's output; no test prints a NUL byte followed by these words."""
# A NUL byte ends each command. Job control puts each command into its own process group, so that
# signals to the group do not reach the shell.
_LOOP = r"""
set -m
while IFS= read -r -d '' command; do
  printf '\0'
  bash -c "$command" </dev/null 2>&1
  printf '\0the command has ended with %s\n' $?
done
"""
_HEADER = struct.Struct(">BxxxL")
"""Header of a frame in Docker's attach protocol: the stream and the payload's length in bytes."""


class _Shell:
    """One bash in a container that runs commands for a user, one at a time."""

    def __init__(self, container: Container, user: str) -> None:
        assert container.client
        api = container.client.api
        # Drop the shell's own stderr: it reports commands that a signal killed.
        loop = ["bash", "-c", _LOOP]
        exec_id = api.exec_create(container.id, loop, stdin=True, stderr=False, user=user)["Id"]
        self._stream = cast(Any, api.exec_start(exec_id, socket=True))
        self._socket: socket.socket = self._stream._sock
        self._socket.settimeout(None)
        self._pieces = self._received()

    def run(self, command: str) -> tuple[int, str] | None:
        """Return exit code and output, or None if the shell had already ended.

        Raises AssertionError if the shell ends before the command.
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
        raise AssertionError(f"{command}: the shell ended before the command; output: {output!r}")

    def close(self) -> None:
        self._stream.close()

    def _received(self) -> Iterator[bytes]:
        while header := self._exactly(_HEADER.size):
            _, length = _HEADER.unpack(header)
            yield self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        """Return exactly `length` bytes, or b"" at the end of the stream."""
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
"""Idle shells by container and user. If no shell is idle, the caller opens a new one."""


def run(
    container: Container,
    command: str | Sequence[str],
    user: str = "root",
    *,
    environment: Mapping[str, str] | None = None,
    workdir: str | None = None,
) -> tuple[int, str]:
    """Run a shell command, or a program with its arguments, like `docker exec`.

    Returns exit code and output, including standard error. Background processes keep running.
    Raises AssertionError if the command ends the shell.
    """
    script = command if isinstance(command, str) else shlex.join(command)
    prefix = [f"export {name}={shlex.quote(text)}; " for name, text in (environment or {}).items()]
    prefix += [f"cd {shlex.quote(workdir)} && "] if workdir else []
    shells = _idle[str(container.id), user]
    text = "".join(prefix) + script
    while shells:
        # A test may have killed an idle shell together with other processes. Then try the next.
        shell = shells.pop()
        if (answer := shell.run(text)) is not None:
            shells.append(shell)
            return answer
    shell = _Shell(container, user)
    answer = shell.run(text)
    if answer is None:
        raise AssertionError(f"{container.name}: cannot start a shell for user {user}")
    shells.append(shell)
    return answer


def close(container_id: str) -> None:
    """Close the shells of a container before its removal."""
    for key in [key for key in _idle if key[0] == container_id]:
        for shell in _idle.pop(key):
            shell.close()
