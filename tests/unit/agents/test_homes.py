"""Homes are made once, complete, and never touched again."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from agents import populate
from agents.homes import homes, main, make_home


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


def test_a_home_is_private_and_has_the_skeleton(jail: Path) -> None:
    assert make_home(jail, "/home/a", os.getuid(), os.getgid())

    home = jail / "home/a"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / ".bashrc").read_text() == "# skeleton\n"
    assert [path.name for path in (jail / "home").iterdir()] == ["a"]


def test_a_home_that_is_there_stays_as_it_is(jail: Path) -> None:
    home = jail / "home/a"
    home.mkdir(mode=0o755)
    (home / "thesis").write_text("years of work")

    assert not make_home(jail, "/home/a", os.getuid(), os.getgid())

    assert (home / "thesis").read_text() == "years of work"
    assert home.stat().st_mode & 0o777 == 0o755


def test_a_run_that_was_cut_short_is_completed(jail: Path) -> None:
    (jail / "home/.a.new").mkdir()
    (jail / "home/.a.new/half").write_text("")

    assert make_home(jail, "/home/a", os.getuid(), os.getgid())

    assert [path.name for path in (jail / "home/a").iterdir()] == [".bashrc"]


PASSWD = f"a:*:{os.getuid()}:{os.getgid()}:A:/home/a:/bin/bash\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(populate, "TERMINATION_LOG", tmp_path / "termination-log")
    return tmp_path / "termination-log"


def run(jail: Path) -> int:
    (jail / "passwd").write_text(PASSWD)
    return main([str(jail / "passwd"), str(jail)])


def test_a_full_volume_is_told_in_one_line_and_leaves_no_half_made_home(
    jail: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        assert run(jail) == populate.REFUSED

    assert log.read_text().startswith("the jail's volume is full: /home/a needs 1 MiB, and ")
    assert "\n" not in log.read_text()
    assert list((jail / "home").iterdir()) == []
    assert run(jail) == 0
    assert [path.name for path in (jail / "home/a").iterdir()] == [".bashrc"]


def test_homes_that_are_there_need_no_room(
    jail: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(jail) == 0
    monkeypatch.setattr(populate, "free", lambda _: 0)

    assert run(jail) == 0
    assert not log.exists()
