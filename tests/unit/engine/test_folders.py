"""The engine's temporary folders are removed, even if the engine was killed."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from engine.folders import temporary_folder

LONG_AGO = 1_700_000_000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(place: Path, name: str) -> Path:
    """Create a folder that looks as if a run left it behind because the run was killed long ago."""
    folder = place / name
    folder.mkdir()
    (folder / "key").touch()
    os.utime(folder, (LONG_AGO, LONG_AGO))
    return folder


def test_folder_is_private_and_disappears(place: Path) -> None:
    with temporary_folder() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


def test_next_run_removes_the_folder_of_a_killed_one(place: Path) -> None:
    killed = left(place, "slurmstack-engine-killed")
    with temporary_folder():
        assert not killed.exists()


def test_folders_of_running_engines_and_other_programs_stay(place: Path) -> None:
    new = place / "slurmstack-engine-new"
    new.mkdir()
    other = left(place, "engine-of-another-program")
    running = left(place, "slurmstack-engine-running")
    link = place / "slurmstack-engine-link"
    link.symlink_to(other)
    os.utime(link, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with temporary_folder() as own:
            os.utime(own, (LONG_AGO, LONG_AGO))
            with temporary_folder():
                assert all(folder.exists() for folder in (new, other, running, own))
                assert (other / "key").exists()
    finally:
        os.close(lock)
