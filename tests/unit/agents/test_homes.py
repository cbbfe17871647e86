"""Home directories are created completely, and are never changed afterwards."""

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from agents import populate
from agents.homes import homes, main, make_home
from agents.populate import RefusedError
from agents.tree import Tree


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "etc/skel").mkdir(parents=True)
    (tmp_path / "etc/skel/.bashrc").write_text("# skeleton\n")
    return tmp_path


def test_homes_are_read_from_passwd() -> None:
    assert homes("a:*:2000:2001:A:/home/a:/bin/bash\nb:*:3000:3000::/home/b:/bin/sh\n") == [
        ("/home/a", 2000, 2001),
        ("/home/b", 3000, 3000),
    ]


def test_new_home_is_private_and_contains_the_skeleton(jail: Path) -> None:
    assert make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    home = jail / "home/a"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / ".bashrc").read_text() == "# skeleton\n"
    assert [path.name for path in (jail / "home").iterdir()] == ["a"]


def test_existing_home_is_unchanged(jail: Path) -> None:
    home = jail / "home/a"
    home.mkdir(mode=0o755)
    (home / "thesis").write_text("years of work")

    assert not make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    assert (home / "thesis").read_text() == "years of work"
    assert home.stat().st_mode & 0o777 == 0o755


def test_next_run_replaces_a_partial_home(jail: Path) -> None:
    (jail / "home/.a.new").mkdir()
    (jail / "home/.a.new/half").write_text("")

    assert make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    assert [path.name for path in (jail / "home/a").iterdir()] == [".bashrc"]


PASSWD = f"a:*:{os.getuid()}:{os.getgid()}:A:/home/a:/bin/bash\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(populate, "TERMINATION_LOG", tmp_path / "termination-log")
    return tmp_path / "termination-log"


def run(jail: Path) -> int:
    (jail / "passwd").write_text(PASSWD)
    return main([str(jail / "passwd"), str(jail)])


def test_full_volume_is_reported_and_leaves_no_partial_home(
    jail: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        assert run(jail) == populate.REFUSED

    assert log.read_text().startswith("the jail's volume is full: /home/a needs 1 MiB, and ")
    assert "\n" not in log.read_text()
    assert list((jail / "home").iterdir()) == []
    assert run(jail) == 0
    assert [path.name for path in (jail / "home/a").iterdir()] == [".bashrc"]


def test_existing_homes_need_no_space(
    jail: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(jail) == 0
    monkeypatch.setattr(populate, "free", lambda _: 0)

    assert run(jail) == 0
    assert not log.exists()


# --- Directories that other users can write ------------------------------------------------------


def outside(jail: Path) -> Path:
    """Make a directory that must stay unchanged, even if a link leads to it."""
    found = jail / "outside"
    found.mkdir()
    (found / "own").write_text("another user's")
    return found


def test_link_within_the_jail_is_followed(jail: Path) -> None:
    (jail / "data/home").mkdir(parents=True)
    (jail / "home").rmdir()
    (jail / "home").symlink_to("/data/home")

    assert make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    assert (jail / "data/home/a/.bashrc").exists()


def test_link_out_of_the_jail_is_not_followed(tmp_path: Path) -> None:
    jail, elsewhere = tmp_path / "jail", tmp_path / "elsewhere"
    jail.mkdir()
    elsewhere.mkdir()
    (jail / "home").symlink_to(elsewhere)

    with pytest.raises(OSError, match="File exists"):
        make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    assert list(elsewhere.iterdir()) == []


def test_link_in_place_of_a_partial_home_is_removed(jail: Path) -> None:
    target = outside(jail)
    (jail / "home/.a.new").symlink_to(target)

    assert make_home(Tree(jail), "/home/a", os.getuid(), os.getgid())

    assert [path.name for path in target.iterdir()] == ["own"]
    assert (jail / "home/a/.bashrc").exists()


def test_directory_that_a_user_replaced_keeps_its_owner(
    jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the parent directory can replace the new home at any moment."""
    (jail / "theirs").mkdir(mode=0o755)
    (jail / "theirs/own").write_text("another user's")
    mkdir = os.mkdir

    def swapped(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if name == ".a.new":
            (jail / "home/.a.new").rename(jail / "home/.away")
            (jail / "theirs").rename(jail / "home/.a.new")

    given: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", swapped)
        patch.setattr(os, "chown", lambda *what, **_: given.append(what))
        with pytest.raises(RefusedError, match="another user replaced this new directory"):
            make_home(Tree(jail), "/home/a", 2000, 2000)

    assert given == []
    assert not (jail / "home/a").exists()


def test_user_owns_directories_and_links_of_the_skeleton(
    jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jail / "etc/skel/.config").mkdir(mode=0o750)
    (jail / "etc/skel/.config/app").write_text("settings")
    (jail / "etc/skel/link").symlink_to("/etc/hosts")
    given: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "chown", lambda what, *_, **__: given.append(what))
        assert make_home(Tree(jail), "/home/a", 2000, 2000)

    home = jail / "home/a"
    assert (home / ".config/app").read_text() == "settings"
    assert stat.S_IMODE((home / ".config").stat().st_mode) == 0o750
    assert str((home / "link").readlink()) == "/etc/hosts"
    assert len(given) == 5, "the home and its four entries"


def test_one_of_two_concurrent_runs_creates_the_home(
    jail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def late(*given: Any, **named: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", rename)
            assert make_home(Tree(jail), "/home/a", os.getuid(), os.getgid(), "other")
        rename(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", late)
        assert not make_home(Tree(jail), "/home/a", os.getuid(), os.getgid(), "one")

    assert [path.name for path in (jail / "home").iterdir()] == ["a"]
