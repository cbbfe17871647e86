"""An NFSv4.1 client with the operations that the tests need.

The client acts as a machine that mounts a jail: kernels of test machines have no NFS client, and
libnfs supports only NFSv4.0. Formats and numbers are from RFC 5531 (calls), RFC 8881 (operations)
and RFC 5662 (XDR encoding of the operations).
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_NFS, _COMPOUND = 100003, 1
_OPEN, _CLOSE, _CREATE, _GETATTR, _GETFH = 18, 4, 6, 9, 10
_LOOKUP, _PUTFH, _PUTROOTFH, _READ, _SETATTR, _WRITE = 15, 22, 24, 25, 34, 38
_EXCHANGE_ID, _CREATE_SESSION, _SEQUENCE, _RECLAIM_COMPLETE = 42, 43, 53, 58
_DIRECTORY = 2
_READ_AND_WRITE = 3
_FILE_SYNC = 2
_MODE, _OWNER, _GROUP = 1 << 1, 1 << 4, 1 << 5
"""Attributes 33, 36 and 37, as bits in the second word of a bitmap."""
_NOBODY = struct.pack(">I12s", 0, b"")
"""Stateid for operations without an open file."""

DENIED, GRACE, MINOR_VERSION, NO_GRACE = 13, 10013, 10021, 10033
"""Error codes (nfsstat4)."""


class NfsError(Exception):
    """The server returned an error; `status` is its code."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"NFS: status {status}")


@dataclass(frozen=True)
class Attributes:
    mode: int
    owner: str
    group: str


@dataclass(frozen=True)
class Open:
    """A file that a machine has opened."""

    handle: bytes
    state: bytes


class _Answer:
    """The unread part of a reply."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def raw(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def number(self) -> int:
        return int.from_bytes(self.raw(4), "big")

    def opaque(self) -> bytes:
        found = self.raw(self.number())
        self.raw(-len(found) % 4)
        return found

    def bitmap(self) -> list[int]:
        return [self.number() for _ in range(self.number())]


def _opaque(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def _numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def _attributes(mode: int | None = None, owner: int | None = None) -> bytes:
    """Encode a mode, an owner, or both. The group has the same id as the owner."""
    values = b"" if mode is None else _numbers(mode)
    bits = 0 if mode is None else _MODE
    if owner is not None:
        bits |= _OWNER | _GROUP
        values += 2 * _opaque(str(owner).encode())
    return _numbers(2, 0, bits) + _opaque(values)


class Machine:
    """A client with a session. It sends requests as the user `uid`."""

    def __init__(self, address: str, name: str, *, minor: int = 1) -> None:
        self.uid = 0
        self._minor, self._name = minor, name
        self._calls = self._requests = 0
        self._connection = socket.create_connection((address, 2049), timeout=30)
        self._session = b""
        found = self._compound(
            _EXCHANGE_ID,
            # Send a constant verifier, as a client does that reconnects without a restart. A new
            # verifier would tell the server to drop the client's state.
            b"verifier" + _opaque(name.encode()) + _numbers(0, 0, 0),
        )
        self._id, sequence = found.raw(8), found.number()
        channel = _numbers(0, 1 << 20, 1 << 20, 4096, 16, 1, 0)
        parameters = self._id + _numbers(sequence, 0) + 2 * channel + _numbers(0, 1, 0)
        self._session = self._compound(_CREATE_SESSION, parameters).raw(16)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    # --- Operations of a machine -----------------------------------------------------------------

    def reclaim_complete(self) -> None:
        """Report that this client has reclaimed its files, so that it can open other files."""
        self._do([], _RECLAIM_COMPLETE, _numbers(0))

    def folder(self, path: str, mode: int = 0o755) -> None:
        *above, name = path.split("/")
        made = _numbers(_DIRECTORY) + _opaque(name.encode()) + _attributes(mode)
        self._do(above, _CREATE, made)

    def open(self, path: str, *, create: bool = False) -> Open:
        *above, name = path.split("/")
        how = _numbers(1, 0) + _attributes(0o644) if create else _numbers(0)
        found = self._do(above, _OPEN, self._opening(how + _numbers(0) + _opaque(name.encode())))
        state = found.raw(16)
        return Open(self._do(path.split("/"), _GETFH).opaque(), state)

    def reclaim(self, opened: Open) -> Open:
        """Reopen a file that was open before a restart of the server."""
        claim = self._opening(_numbers(0, 1, 0))
        return Open(opened.handle, self._do(opened.handle, _OPEN, claim).raw(16))

    def write(self, opened: Open, data: bytes) -> None:
        request = opened.state + struct.pack(">QI", 0, _FILE_SYNC) + _opaque(data)
        assert self._do(opened.handle, _WRITE, request).number() == len(data)

    def read(self, opened: Open) -> bytes:
        found = self._do(opened.handle, _READ, opened.state + struct.pack(">QI", 0, 1 << 16))
        found.number()
        return found.opaque()

    def close(self, opened: Open) -> None:
        self._do(opened.handle, _CLOSE, _numbers(0) + opened.state)

    def set_owner(self, path: str, owner: int) -> None:
        self._do(path.split("/"), _SETATTR, _NOBODY + _attributes(owner=owner))

    def attributes(self, path: str) -> Attributes:
        wanted = _numbers(2, 0, _MODE | _OWNER | _GROUP)
        found = self._do(path.split("/"), _GETATTR, wanted)
        found.bitmap()
        values = _Answer(found.opaque())
        return Attributes(values.number(), values.opaque().decode(), values.opaque().decode())

    # --- Encoding --------------------------------------------------------------------------------

    def _opening(self, how: bytes) -> bytes:
        owner = self._id + _opaque(b"process")
        return _numbers(0, _READ_AND_WRITE, 0) + owner + how

    def _do(self, where: Sequence[str] | bytes, operation: int, arguments: bytes = b"") -> _Answer:
        """Send one operation on a path or a file handle, and return the reply."""
        if isinstance(where, bytes):
            lookups = [(_PUTFH, _opaque(where))]
        else:
            lookups = [(_PUTROOTFH, b""), *((_LOOKUP, _opaque(name.encode())) for name in where)]
        self._requests += 1
        sequence = self._session + _numbers(self._requests, 0, 0, 0)
        if operation == _RECLAIM_COMPLETE:
            lookups = []
        return self._compound(operation, arguments, [(_SEQUENCE, sequence), *lookups])

    def _compound(
        self, operation: int, arguments: bytes, before: Sequence[tuple[int, bytes]] = ()
    ) -> _Answer:
        """Send operations, and return the reply to the last one. Raises NfsError."""
        operations = [*before, (operation, arguments)]
        packed = b"".join(_numbers(number) + given for number, given in operations)
        found = self._call(_opaque(b"") + _numbers(self._minor, len(operations)) + packed)
        status = found.number()
        if status:
            raise NfsError(status)
        found.opaque()
        found.number()
        for number, _ in before:
            assert (found.number(), found.number()) == (number, 0)
            # Skip the result of SEQUENCE, the only preceding operation with a result.
            found.raw(36 if number == _SEQUENCE else 0)
        assert (found.number(), found.number()) == (operation, 0)
        return found

    def _call(self, arguments: bytes) -> _Answer:
        self._calls += 1
        credentials = _numbers(0) + _opaque(self._name.encode()) + _numbers(self.uid, self.uid, 0)
        head = _numbers(self._calls, 0, 2, _NFS, 4, _COMPOUND, 1) + _opaque(credentials)
        message = head + _numbers(0, 0) + arguments
        self._connection.sendall(_numbers(1 << 31 | len(message)) + message)
        answer = _Answer(self._record())
        # Transaction id, message type REPLY, MSG_ACCEPTED; then verifier and SUCCESS.
        assert [answer.number() for _ in range(3)] == [self._calls, 1, 0]
        answer.number()
        answer.opaque()
        assert answer.number() == 0
        return answer

    def _record(self) -> bytes:
        found, last = b"", False
        while not last:
            mark = int.from_bytes(self._exactly(4), "big")
            last = bool(mark >> 31)
            found += self._exactly(mark & ~(1 << 31))
        return found

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._connection.recv(count - len(found))
            assert piece, "the server closed the connection"
            found += piece
        return found
