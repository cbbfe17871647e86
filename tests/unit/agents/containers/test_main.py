"""The command slurm-image reports each failure in one line."""

import errno
import fcntl
import os
import tarfile
import zlib
from pathlib import Path

import pytest

from agents.containers import __main__ as command
from agents.containers import counts
from agents.containers.importer import Importer
from agents.containers.settings import Settings

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Use a cache in a temporary directory. Return the list of reports that commands send to the
    node's listener, which counts imports."""
    settings = Settings(cache=f"{tmp_path}/cache/%u", folder=tmp_path / "settings")
    monkeypatch.setattr(command, "read", lambda: settings)
    sent: list[str] = []
    monkeypatch.setattr(counts, "_send", sent.append)
    return sent


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that fails, and return the line that it prints."""
    assert command.main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/home/x"),
        OSError("Invalid data stream"),
        *(EOFError("ended\nearly"), tarfile.ReadError("bad"), zlib.error("bad"), KeyError("x")),
        *(RecursionError("maximum depth"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "bad")),
    ],
)
def test_python_exception_of_an_import_is_reported_in_one_line(
    error: Exception,
    reports: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(self: Importer, text: str) -> Path:
        raise error

    monkeypatch.setattr(Importer, "find", find)

    assert refusal(capsys, "find", "ubuntu:24.04").startswith("container: ubuntu:24.04: ")
    assert reports == ["failure"]


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2", ""])
def test_truncated_archive_is_reported_in_one_line(
    kind: str, tmp_path: Path, reports: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    content = tmp_path / "content"
    content.write_bytes(os.urandom(100_000))
    archive, part = tmp_path / "archive", tmp_path / "part"
    with tarfile.open(archive, f"w:{kind}") as file:  # type: ignore[call-overload]
        file.add(content, "blobs/a")
        file.add(content, "oci-layout")
    part.write_bytes(archive.read_bytes()[:50_000])

    line = refusal(capsys, "find", str(part))

    assert f"image {part}: " in line
    assert "incomplete" in line or "expected a squashfs file" in line
    assert reports == ["failure"]


def test_unreadable_file_of_an_image_is_reported_in_one_line(
    tmp_path: Path,
    reports: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = tmp_path / "image/etc/rc"
    script.parent.mkdir(parents=True)
    script.write_text("exec sh")
    read_text = Path.read_text

    def restricted(path: Path, *arguments: str, **named: str) -> str:
        """Refuse to read the script, which root could read despite its mode."""
        if path == script:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read_text(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", restricted)

    line = refusal(capsys, "find", str(tmp_path / "image"))

    assert f"Permission denied: {script}: make the file readable" in line


def test_file_system_without_locks_is_reported_in_one_line(
    tmp_path: Path,
    reports: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    (tmp_path / "image").mkdir()

    line = refusal(capsys, "find", str(tmp_path / "image"))

    assert "must support flock(2)" in line
