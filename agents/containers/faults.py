"""Python exceptions that this package catches: damaged images and full disks cause them."""

import lzma
import tarfile
import zlib
from typing import Final

FAULTS: Final = (
    *(AttributeError, EOFError, LookupError, OSError, RecursionError, TypeError, ValueError),
    *(lzma.LZMAError, tarfile.TarError, zlib.error),
)
"""Python exceptions that a damaged or hostile image, or a full disk, can cause."""


def describe(error: BaseException) -> str:
    """Return the reason of an exception in one line, with the file's name if there is one."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())
