"""A machine that has a jail mounted: as much of NFSv4.1 as shows what the server does.

Kernels of test machines have no NFS client, and libnfs speaks NFSv4.0 alone. Forms and numbers are
those of RFC 5531 (calls), RFC 8881 (operations) and RFC 5662 (how these are packed).
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
"""Attributes 33, 36 and 37, as bits of the second word."""
_NOBODY = struct.pack(">I12s", 0, b"")
"""The stateid of who has nothing open."""

DENIED, GRACE, MINOR_VERSION, NO_GRACE = 13, 10013, 10021, 10033
"""What errors are called by (nfsstat4)."""


class NfsError(Exception):
    """The server answered with an error; `status` is its code."""

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
    """A file that a machine has open."""

    handle: bytes
    state: bytes


class _Answer:
    """What is left to read of an answer."""

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
    """A mode, or an owner with his group, as it is sent."""
    values = b"" if mode is None else _numbers(mode)
    bits = 0 if mode is None else _MODE
    if owner is not None:
        bits |= _OWNER | _GROUP
        values += 2 * _opaque(str(owner).encode())
    return _numbers(2, 0, bits) + _opaque(values)


class Machine:
    """One client with its session; requests are sent as the user `uid`."""

    def __init__(self, address: str, name: str, *, minor: int = 1) -> None:
        self.uid = 0
        self._minor, self._name = minor, name
        self._calls = self._requests = 0
        self._connection = socket.create_connection((address, 2049), timeout=30)
        self._session = b""
        found = self._compound(
            _EXCHANGE_ID,
            # Who starts has another verifier; who only comes back has the one that he had.
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

    # --- What a machine does ---------------------------------------------------------------------

    def has_reclaimed(self) -> None:
        """Tells that it has back all that it had open; before, it may open nothing."""
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
        """Opens what it had open before the server started again."""
        claim = self._opening(_numbers(0, 1, 0))
        return Open(opened.handle, self._do(opened.handle, _OPEN, claim).raw(16))

    def write(self, opened: Open, data: bytes) -> None:
        said = opened.state + struct.pack(">QI", 0, _FILE_SYNC) + _opaque(data)
        assert self._do(opened.handle, _WRITE, said).number() == len(data)

    def read(self, opened: Open) -> bytes:
        found = self._do(opened.handle, _READ, opened.state + struct.pack(">QI", 0, 1 << 16))
        found.number()
        return found.opaque()

    def close(self, opened: Open) -> None:
        self._do(opened.handle, _CLOSE, _numbers(0) + opened.state)

    def give(self, path: str, owner: int) -> None:
        self._do(path.split("/"), _SETATTR, _NOBODY + _attributes(owner=owner))

    def look(self, path: str) -> Attributes:
        wanted = _numbers(2, 0, _MODE | _OWNER | _GROUP)
        found = self._do(path.split("/"), _GETATTR, wanted)
        found.bitmap()
        values = _Answer(found.opaque())
        return Attributes(values.number(), values.opaque().decode(), values.opaque().decode())

    # --- How it says that ------------------------------------------------------------------------

    def _opening(self, how: bytes) -> bytes:
        owner = self._id + _opaque(b"process")
        return _numbers(0, _READ_AND_WRITE, 0) + owner + how

    def _do(self, where: Sequence[str] | bytes, operation: int, arguments: bytes = b"") -> _Answer:
        """The answer to one operation on a path or a handle."""
        if isinstance(where, bytes):
            way = [(_PUTFH, _opaque(where))]
        else:
            way = [(_PUTROOTFH, b""), *((_LOOKUP, _opaque(name.encode())) for name in where)]
        self._requests += 1
        sequence = self._session + _numbers(self._requests, 0, 0, 0)
        if operation == _RECLAIM_COMPLETE:
            way = []
        return self._compound(operation, arguments, [(_SEQUENCE, sequence), *way])

    def _compound(
        self, operation: int, arguments: bytes, before: Sequence[tuple[int, bytes]] = ()
    ) -> _Answer:
        """The answer to the last of some operations. Raises NfsError."""
        asked = [*before, (operation, arguments)]
        packed = b"".join(_numbers(number) + given for number, given in asked)
        found = self._call(_opaque(b"") + _numbers(self._minor, len(asked)) + packed)
        status = found.number()
        if status:
            raise NfsError(status)
        found.opaque()
        found.number()
        for number, _ in before:
            assert (found.number(), found.number()) == (number, 0)
            # Of those that come before others, one alone has an answer.
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
        # Its number, that it is an answer, accepted; by whom, and that it was carried out.
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
            assert piece, "the server hangs up"
            found += piece
        return found
