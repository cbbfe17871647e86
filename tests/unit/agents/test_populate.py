"""The jail's system files are replaced by a newer or earlier generation, despite interruptions.

A generation is the set of system files that comes from one jail image.
"""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents import populate
from agents.backup.files import MARK
from agents.populate import GENERATIONS, MARKER, Image, Jail, RefusedError
from agents.tree import Tree, by_descriptor
from components import conventions as c
from local.paths import ROOT

Content = Mapping[str, str | None]
"""Content by path: the text of a file, a link (`-> target`), or None for a directory."""

OLD: Content = {
    "etc/motd": "old",
    "home": None,
    "usr/bin/tmux": "old tmux",
    "usr/bin/gone": "of the old image alone",
    "usr/lib/old/data": "old data",
    "usr/lib/libc.so": "-> libc.so.1",
    "usr/lib/libc.so.1": "libc 1",
    "usr/lib/turns/file": "in a folder",
}
NEW: Content = {
    "etc/motd": "new",
    "home": None,
    "usr/bin/tmux": "new tmux",
    "usr/bin/fresh": "of the new image alone",
    "usr/lib/libc.so": "-> libc.so.2",
    "usr/lib/libc.so.2": "libc 2",
    "usr/lib/turns": "-> libc.so.2",
    "usr/share/fresh/data": "new data",
}
USERS: Content = {
    "home/ada/thesis": "years of work",
    "usr/lib/old/own": "ada's own",
    "usr/bin/fresh": "ada's own program",
    "data": "-> /home/ada",
}
"""Files of users in the jail. The new image also has a file at the path usr/bin/fresh."""


@pytest.fixture(autouse=True)
def _without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests run without root, and without waiting for a disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    if os.getuid():
        monkeypatch.setattr(os, "chown", lambda *_, **__: None)


def write(root: Path, tree: Content) -> None:
    for path, content in tree.items():
        place = root / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            place.symlink_to(content.removeprefix("-> "))
        else:
            place.write_text(content)


def look(path: Path) -> str | None:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return None if path.is_dir() else path.read_text()


def read(root: Path) -> dict[str, tuple[str | None, int]]:
    """Return everything that a user sees in a jail, with modes."""
    return {
        str(path.relative_to(root)): (look(path), stat.S_IMODE(path.lstat().st_mode))
        for path in sorted(root.rglob("*"))
        if not path.is_relative_to(root / populate.STATE)
    }


class Files(Image):
    """An image that is a directory."""

    def unpack(self, target: int) -> None:
        shutil.copytree(self.root, by_descriptor(target), symlinks=True, dirs_exist_ok=True)


@pytest.fixture
def image(tmp_path: Path) -> Callable[[Content], Image]:
    def image(tree: Content) -> Image:
        root = tmp_path / f"image-{hash(tuple(tree.items()))}"
        if not root.exists():
            write(root, tree)
        return Files(root)

    return image


Images = Callable[[Content], Image]


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    root = tmp_path / "jail"
    root.mkdir()
    return root


@pytest.fixture
def used_jail(jail: Path, image: Images) -> Path:
    """A jail at generation 1 with files of users."""
    Jail(jail).reach(1, image(OLD))
    write(jail, USERS)
    (jail / "etc/motd").chmod(0o600)
    return jail


def contents(jail: Path) -> dict[str, str | None]:
    return {path: content for path, (content, _) in read(jail).items()}


def test_jail_is_filled_only_once(jail: Path, image: Images) -> None:
    Jail(jail).reach(0, image(OLD))
    (jail / "etc/motd").write_text("edited")

    output = Jail(jail).reach(0, image(NEW))

    assert "so nothing changes" in output
    assert contents(jail)["usr/bin/tmux"] == "old tmux"
    assert contents(jail)["etc/motd"] == "edited"
    assert (jail / MARKER).read_text() == "0\n"


def test_partly_restored_jail_is_not_filled(jail: Path, image: Images) -> None:
    (jail / MARK).touch()

    with pytest.raises(RefusedError, match="the restore of the jail was interrupted"):
        Jail(jail).reach(0, image(OLD))
    assert [path.name for path in jail.iterdir()] == [MARK]


def test_open_files_survive_a_refresh(used_jail: Path, image: Images) -> None:
    with (used_jail / "usr/bin/tmux").open() as running:
        Jail(used_jail).reach(2, image(NEW))

        assert running.read() == "old tmux"
        assert os.fstat(running.fileno()).st_nlink == 1, (
            "NFS clients lose an open file that has no link"
        )


def test_refresh_adds_files_of_the_image_and_keeps_users_files(
    used_jail: Path, image: Images
) -> None:
    Jail(used_jail).reach(2, image(NEW))

    found = contents(used_jail)
    assert {path: found[path] for path in NEW} == NEW
    assert found["home/ada/thesis"] == "years of work"
    assert found["usr/lib/old/own"] == "ada's own"
    assert "usr/bin/gone" not in found, "the file came from the old image"
    assert "usr/lib/old/data" not in found


def test_return_to_the_previous_generation_undoes_the_refresh(
    used_jail: Path, image: Images
) -> None:
    before = read(used_jail)
    Jail(used_jail).reach(2, image(NEW))
    (used_jail / "home/ada/more").write_text("written meanwhile")

    Jail(used_jail).reach(1, image(NEW))

    after = read(used_jail)
    assert after.pop("home/ada/more")[0] == "written meanwhile"
    assert after == before


def test_writes_after_a_refresh_do_not_change_the_previous_generation(
    used_jail: Path, image: Images
) -> None:
    before = read(used_jail)
    Jail(used_jail).reach(2, image(OLD))
    for path in ("usr/bin/tmux", "usr/lib/libc.so.1"):
        (used_jail / path).write_text("spoiled")

    Jail(used_jail).reach(1, image(OLD))

    assert read(used_jail) == before


def test_restored_file_of_a_user_survives_the_next_refresh(used_jail: Path, image: Images) -> None:
    Jail(used_jail).reach(2, image(NEW))
    Jail(used_jail).reach(1, image(NEW))

    Jail(used_jail).reach(2, image(OLD))

    assert contents(used_jail)["usr/bin/fresh"] == "ada's own program"


def test_jail_keeps_one_earlier_generation_that_only_root_can_enter(
    used_jail: Path, image: Images
) -> None:
    for number, tree in ((2, NEW), (3, OLD), (4, NEW), (3, NEW)):
        Jail(used_jail).reach(number, image(tree))

    folder = used_jail / GENERATIONS
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["before", "system"]
    assert Jail(used_jail).before.number() == 4


@pytest.mark.parametrize(
    ("reached", "wanted", "expected"),
    [
        ([5], 4, "keeps no earlier generation; set 'jail.refresh' to 6 to unpack"),
        (
            [1, 2, 3],
            1,
            "keeps only generation 2; set 'jail.refresh' to 2 to restore that generation, or to 4",
        ),
        ([1, 2, 1], 0, "keeps only generation 2"),
    ],
)
def test_discarded_generation_cannot_be_restored(
    jail: Path, image: Images, reached: list[int], wanted: int, expected: str
) -> None:
    for number in reached:
        Jail(jail).reach(number, image(OLD))
    before = read(jail)

    with pytest.raises(RefusedError, match=f"jail.refresh: {wanted}: .*{expected}"):
        Jail(jail).reach(wanted, image(OLD))

    assert read(jail) == before


def test_jail_without_kept_generations_can_refresh_and_go_back(
    used_jail: Path, image: Images
) -> None:
    shutil.rmtree(used_jail / GENERATIONS)
    before = contents(used_jail)

    Jail(used_jail).reach(2, image({**NEW, "usr/lib/turns": None}))
    assert contents(used_jail)["usr/bin/gone"], (
        "the jail must keep this file: without a kept generation, it may be a user's file"
    )
    Jail(used_jail).reach(1, image(NEW))

    after = contents(used_jail)
    assert {path: after.get(path) for path in before} == before


def test_mount_points_of_nodes_are_created(jail: Path, image: Images) -> None:
    Jail(jail).reach(1, image(OLD))
    Jail(jail, ["/data/shared", "/scratch"]).reach(1, image(OLD))

    found = contents(jail)
    folders = ("dev", "proc", "sys", "data/shared", "scratch")
    assert [found[path] for path in folders] == [None] * 5
    assert found["etc/hosts"] == found["etc/resolv.conf"] == ""


def test_mount_point_below_a_symbolic_link_is_refused(used_jail: Path, image: Images) -> None:
    with pytest.raises(
        RefusedError, match=r"/data in the jail: must be a directory.*a volume at /data/shared"
    ):
        Jail(used_jail, ["/data/shared"]).reach(1, image(OLD))


def test_file_does_not_replace_a_directory_that_contains_users_files(
    used_jail: Path, image: Images
) -> None:
    (used_jail / "usr/lib/turns/mine").write_text("own")
    before = read(used_jail)

    with pytest.raises(RefusedError, match=r"/usr/lib/turns: the requested.*'mine'.*rename"):
        Jail(used_jail).reach(2, image(NEW))

    assert read(used_jail) == before


def test_links_in_the_jail_are_not_followed(used_jail: Path, image: Images, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"old/data": "not the jail's"})
    shutil.rmtree(used_jail / "usr/lib")
    (used_jail / "usr/lib").symlink_to(outside)

    Jail(used_jail).reach(2, image(NEW))
    Jail(used_jail).reach(1, image(NEW))

    assert contents(outside) == {"old": None, "old/data": "not the jail's"}
    assert contents(used_jail)["usr/lib"] == f"-> {outside}"


# --- Full volumes --------------------------------------------------------------------------------


def test_too_small_volume_is_refused_before_unpacking(
    used_jail: Path, image: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(used_jail)
    big = image({**NEW, "usr/lib/big": "x" * 9 * populate.MIB})
    monkeypatch.setattr(populate, "free", lambda _: 5 * populate.MIB)
    monkeypatch.setattr(Files, "unpack", None)

    with pytest.raises(RefusedError) as caught:
        Jail(used_jail).reach(2, big)

    assert str(caught.value) == (
        "the jail's volume is full: generation 2 needs 10 MiB, and 5 MiB are free; delete files or "
        "raise 'jail.size', then deploy again; this run did not change the jail"
    )
    assert read(used_jail) == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_volume_during_unpacking_leaves_the_jail_unchanged(
    used_jail: Path, image: Images, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    before = read(used_jail)
    new = image(NEW)

    def half(_: Image, target: int) -> None:
        os.mkdir("usr", dir_fd=target)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as full:
        full.setattr(Files, "unpack", half)
        with pytest.raises(RefusedError, match="the jail's volume is full: generation 2 needs"):
            Jail(used_jail).reach(2, new)

    assert read(used_jail) == before
    assert not (used_jail / GENERATIONS / "incoming.new").exists(), "partial files must not remain"
    Jail(used_jail).reach(2, new)
    assert contents(used_jail)["usr/bin/tmux"] == "new tmux"


def test_previous_generation_is_restored_with_little_free_space(
    used_jail: Path, image: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(used_jail)
    Jail(used_jail).reach(2, image(NEW))
    after = read(used_jail)

    monkeypatch.setattr(populate, "free", lambda _: 0)
    with pytest.raises(RefusedError, match="full: the copy of the current generation needs 1 MiB"):
        Jail(used_jail).reach(1, image(NEW))
    assert read(used_jail) == after

    monkeypatch.setattr(populate, "free", lambda _: populate.MIB)
    Jail(used_jail).reach(1, image(NEW))
    assert read(used_jail) == before


# --- Interruptions -------------------------------------------------------------------------------

CALLS = ("chown", "fchmod", "link", "mkdir", "rename", "rmdir", "unlink")
"""System calls that change files of the jail."""


class Killed(BaseException):
    """The process was killed."""


class Countdown:
    """Allows a number of system calls. Each further call raises `failure`."""

    def __init__(self, calls: int, failure: BaseException) -> None:
        self.left = calls
        self.failure = failure

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise self.failure
            return call(*given, **named)

        return counted


def interrupted(calls: int, failure: BaseException, work: Callable[[], object]) -> bool:
    """Run `work` until it has made `calls` system calls. Return whether it was interrupted."""
    countdown = Countdown(calls, failure)
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, countdown.wrap(getattr(os, name)))
        try:
            work()
        except (Killed, RefusedError, OSError):
            return True
    return False


def every_moment() -> Iterator[int]:
    """Yield the numbers of system calls after which a test interrupts a run."""
    yield from range(1, 5000, 2)


@pytest.mark.parametrize(
    ("steps", "failure"),
    [
        pytest.param([2], Killed(), id="killed during a refresh"),
        pytest.param([2, 1], Killed(), id="killed on the way back to generation 1"),
        pytest.param([2, 1, 2], OSError(errno.ENOSPC, "full"), id="full during a second refresh"),
    ],
)
def test_next_run_completes_a_run_interrupted_at_any_call(
    tmp_path: Path, image: Images, steps: list[int], failure: BaseException
) -> None:
    *first, last = steps
    start = tmp_path / "start"
    start.mkdir()
    Jail(start).reach(1, image(OLD))
    write(start, USERS)
    for number in first:
        Jail(start).reach(number, image(NEW))
    whole = tmp_path / "whole"
    shutil.copytree(start, whole, symlinks=True)
    Jail(whole).reach(last, image(NEW))
    old, new = contents(start), contents(whole)
    both = {path for path in old if path in new and path != "usr/lib/turns"}

    for calls in every_moment():
        jail = tmp_path / "jail"
        shutil.copytree(start, jail, symlinks=True)
        cut = interrupted(calls, failure, lambda: Jail(jail).reach(last, image(NEW)))  # noqa: B023
        found = contents(jail)
        for path in both:
            assert found[path] in (old[path], new[path]), f"{path} after {calls} calls"
        Jail(jail).reach(last, image(NEW))
        assert read(jail) == read(whole), f"interrupted after {calls} calls"
        shutil.rmtree(jail)
        if not cut:
            assert calls > 40
            return
    pytest.fail("the run never completed")


NUMBERS = st.integers(1, 4)


@hypothesis_settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walk=st.lists(st.tuples(NUMBERS, st.integers(1, 200)), max_size=8))
def test_user_files_survive_any_sequence_of_generations(
    tmp_path_factory: pytest.TempPathFactory, image: Images, walk: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("walk")
    Jail(root).reach(1, image(OLD))
    write(root, {path: text for path, text in USERS.items() if path != "usr/bin/fresh"})

    for number, calls in walk:
        tree = NEW if number % 2 == 0 else OLD
        interrupted(calls, Killed(), lambda: Jail(root).reach(number, image(tree)))  # noqa: B023
    Jail(root).reach(5, image(NEW))

    found = contents(root)
    assert {path: found[path] for path in NEW} == NEW
    assert found["home/ada/thesis"] == "years of work"
    assert found["usr/lib/old/own"] == "ada's own"
    assert not set(found) & (OLD.keys() - NEW.keys() - {"usr/lib/turns/file"})


# --- The Job -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RefusedError("no room"), "no room"),
        (OSError(errno.ESTALE, "Stale file handle"), "the jail: [Errno 116] Stale file handle"),
        (
            PermissionError(errno.EPERM, "no"),
            "the jail: [Errno 1] no; root must be able to own files on the jail's volume: ",
        ),
    ],
)
def test_termination_message_says_why_the_job_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    log = tmp_path / "termination-log"
    monkeypatch.setattr(populate, "TERMINATION_LOG", log)

    def fail() -> str:
        raise error

    refused = isinstance(error, RefusedError)
    assert populate.job("the jail", fail) == (populate.REFUSED if refused else 1)
    assert log.read_text().startswith(expected)
    assert "\n" not in log.read_text()


def test_scripts_and_components_use_the_marker_and_exit_code_of_populate() -> None:
    assert f"{c.JAIL}/{MARKER}" == c.JAIL_MARKER
    assert populate.REFUSED == c.JAIL_REFUSED
    for script in ("slurmd", "ready"):
        text = (ROOT / "images/worker" / script).read_text()
        assert f"mark={c.JAIL_MARKER}\n" in text, script


def test_second_job_waits_and_fails_while_the_first_runs(jail: Path) -> None:
    tree = Tree(jail)
    with populate.alone(tree), pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", iter([0, 1, 601]).__next__)
        patch.setattr(time, "sleep", lambda _: None)
        with (
            pytest.raises(RefusedError, match="another Job has been changing the jail"),
            populate.alone(tree),
        ):
            pytest.fail("both Jobs work on the jail")
