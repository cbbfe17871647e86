"""Which files changed while a folder was backed up."""

import os
import time
from pathlib import Path

from agents.backup.files import changed


def test_changed_files_are_listed_with_paths_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "home/ada").mkdir(parents=True)
    (tmp_path / "home/ada/old").touch()
    old = time.time()
    time.sleep(0.05)
    (tmp_path / "home/ada/new").touch()
    (tmp_path / "top").touch()

    assert changed(tmp_path, old + 0.02) == ["/home/ada/new", "/top"]


def test_changed_owner_or_mode_counts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (0, 0))
    time.sleep(0.05)
    before = time.time() - 0.02
    (tmp_path / "file").chmod(0o600)

    assert changed(tmp_path, before) == ["/file"]


def test_excluded_folders_and_folders_behind_links_are_skipped(tmp_path: Path) -> None:
    jail, outside = tmp_path / "jail", tmp_path / "outside"
    for folder in (jail / "tmp", jail / "data/tmp", outside):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (jail / "link").symlink_to(outside)

    assert changed(jail, 0, ["/tmp"]) == ["/data/tmp/file"]
