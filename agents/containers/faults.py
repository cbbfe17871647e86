"""Exceptions of Python that damaged images and full disks cause."""

import lzma
import tarfile
import zlib
from typing import Final

FAULTS: Final = (
    *(AttributeError, EOFError, LookupError, OSError, RecursionError, TypeError, ValueError),
    *(lzma.LZMAError, tarfile.TarError, zlib.error),
)
"""Exceptions of Python that damaged or hostile images and full disks can cause."""


def describe(error: BaseException) -> str:
    """Return the reason of an exception in one line, with the file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())
