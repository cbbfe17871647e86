"""Which files changed while a folder was backed up, and which are too large for a backup."""

import os
import time
from pathlib import Path

from agents.backup.files import Limits, inspect

NOW = time.time() + 3600
"""A time after all changes of a test."""


def test_changed_files_are_listed_with_paths_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "home/ada").mkdir(parents=True)
    (tmp_path / "home/ada/old").touch()
    old = time.time()
    time.sleep(0.05)
    (tmp_path / "home/ada/new").touch()
    (tmp_path / "top").touch()

    (text,) = inspect(tmp_path, old + 0.02, Limits())

    assert text.startswith("files that changed during the backup: 2 (")
    assert "/home/ada/new" in text
    assert "/top" in text


def test_changed_owner_or_mode_counts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (0, 0))
    time.sleep(0.05)
    before = time.time() - 0.02
    (tmp_path / "file").chmod(0o600)

    assert inspect(tmp_path, before, Limits()) == [
        "files that changed during the backup: 1 (/file)"
    ]


def test_excluded_folders_and_folders_behind_links_are_skipped(tmp_path: Path) -> None:
    jail, outside = tmp_path / "jail", tmp_path / "outside"
    for folder in (jail / "tmp", jail / "data/tmp", outside):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (jail / "link").symlink_to(outside)

    texts = inspect(jail, 0, Limits(exclude=("/tmp/*", "*.core")))

    assert texts == ["files that changed during the backup: 1 (/data/tmp/file)"]


def test_only_five_paths_are_shown(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / str(number)).touch()

    (text,) = inspect(tmp_path, 0, Limits())

    assert text.startswith("files that changed during the backup: 9 (")
    assert text.count("/") == 5
    assert text.endswith(", …)")


def test_name_with_a_line_break_stays_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nbackup: the set 'x' is complete").touch()

    (text,) = inspect(tmp_path, 0, Limits())

    assert len(text.splitlines()) == 1


def test_sparse_file_above_the_limit_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "large").open("w") as file:
        file.truncate(3 << 20)
    (tmp_path / "small").touch()

    texts = inspect(tmp_path, NOW, Limits(largest=2))

    assert texts == ["files that are larger than 'backup.largest_file': 1 (/large)"]
