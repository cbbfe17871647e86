"""The image cache of a user: its permissions, locks, size and files."""

import contextlib
import errno
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.containers import cache as cache_module
from agents.containers.cache import Cache, remove, settle
from agents.containers.errors import ImageError

USER = 65534
"""Uid of a user other than root."""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can change owners")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Run as a user other than root, because permissions do not restrict root."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def own() -> Iterator[Path]:
    """Run the test as a user other than root, and provide a directory of this user."""
    if os.getuid() != 0:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    # Other users cannot enter pytest's directories.
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, USER, -1)
        with as_user(USER):
            yield Path(name)


def image(cache: Cache, key: str, size: int = 10, age: float = 0, blobs: str = "") -> Path:
    with cache.temporary() as folder:
        (folder / "root").mkdir()
        (folder / "size").write_text(str(size))
        (folder / "blobs").write_text(blobs)
        (folder / "lock").touch()
        used = time.time() - age
        os.utime(folder / "lock", (used, used))
        return cache.add(key, folder)


def test_cache_is_private(cache: Cache) -> None:
    assert cache.path.stat().st_mode & 0o7777 == 0o700


def test_unusable_cache_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ImageError, match="cannot use the image cache"):
        Cache(tmp_path / "file/cache")


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_cache_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "cache"
    path.mkdir()
    path.chmod(mode)

    with pytest.raises(ImageError, match=f"other users can write to it: .* chmod 700 {path}"):
        Cache(path)

    assert path.stat().st_mode & 0o777 == mode


@needs_root
@pytest.mark.parametrize("planted", ["alice", "alice/cache"])
def test_cache_that_another_user_created_is_refused(tmp_path: Path, planted: str) -> None:
    (tmp_path / "alice/cache").mkdir(parents=True)
    os.chown(tmp_path / planted, USER, -1)

    with pytest.raises(
        ImageError, match=f"alice.*: it belongs to the user {USER}, expected .*: ask"
    ):
        Cache(tmp_path / "alice/cache", above=str(tmp_path))

    assert list((tmp_path / "alice/cache").iterdir()) == []


@needs_root
def test_cache_that_is_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    mine, path = tmp_path / "mine", tmp_path / "cache"
    mine.mkdir()
    mine.chmod(0o755)
    path.symlink_to(mine)
    os.chown(path, USER, -1, follow_symlinks=False)

    with pytest.raises(ImageError, match=f"it belongs to the user {USER}"):
        Cache(path)

    assert mine.stat().st_mode & 0o777 == 0o755


def test_cache_may_be_a_link_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "scratch")

    assert Cache(tmp_path / "cache").images() == []


def test_failed_import_leaves_no_files(cache: Cache) -> None:
    with contextlib.suppress(RuntimeError), cache.temporary() as folder:
        (folder / "root").mkdir()
        raise RuntimeError

    assert cache.images() == []
    assert list((cache.path / "temporary").iterdir()) == []


def test_second_import_with_the_same_key_uses_the_first_image(cache: Cache) -> None:
    first = image(cache, "a", size=1)

    assert image(cache, "a", size=2) == first
    assert (first / "size").read_text() == "1"


def test_reference_is_recorded_with_its_expiry_time(cache: Cache) -> None:
    made = image(cache, "a")
    cache.record("docker://x#y:1", "a", fresh_for=100)

    (record,) = (cache.path / "references").iterdir()

    assert record.name == "docker%3A%2F%2Fx%23y%3A1"
    assert cache.recorded("docker://x#y:1") == made
    assert 90 < record.stat().st_mtime - time.time() < 110


def test_overlong_reference_is_not_recorded(cache: Cache) -> None:
    cache.record("x" * 300, "a", fresh_for=100)

    assert cache.recorded("x" * 300) is None


def test_concurrent_import_waits_for_the_lock(cache: Cache) -> None:
    order = []

    def second() -> None:
        with cache.locked("a", "image"):
            order.append("second")

    with cache.locked("a", "image"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()

    assert order == ["first", "second"]


# --- Space ----------------------------------------------------------------------------------------


def test_shrinking_removes_least_recently_used_images(cache: Cache) -> None:
    for key, age in (("new", 1), ("old", 1000), ("older", 2000)):
        image(cache, key, age=age)

    assert cache.shrink(limit=15) == 20
    assert [path.name for path in cache.images()] == ["new"]


def test_shrinking_keeps_an_image_in_use(cache: Cache) -> None:
    made = image(cache, "used", age=1000)
    image(cache, "new")
    with (made / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)

        cache.shrink(limit=0)

        assert [path.name for path in cache.images()] == ["used"]
    assert cache.remove(made)


def test_removal_keeps_an_image_that_was_imported_again(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image(cache, "a")
    flock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        """Take the lock after other processes have removed the image and imported it again."""
        monkeypatch.setattr(fcntl, "flock", flock)
        assert cache.remove(first)
        image(cache, "a", size=7)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)

    assert not cache.remove(first)
    assert (first / "size").read_text() == "7"


def test_container_that_waits_for_the_lock_finds_no_removed_files(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = image(cache, "a")
    monkeypatch.setattr(cache_module, "remove", lambda path: None)
    opened = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert cache.remove(made)

        with pytest.raises(FileNotFoundError):
            os.open("root", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened)
    finally:
        os.close(opened)


def test_shrinking_removes_images_from_a_cache_on_nfs(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def over_nfs(descriptor: int, operation: int) -> None:
        """Fail like flock(2) over NFS: an exclusive lock requires a file open for writing."""
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if operation & fcntl.LOCK_EX and access == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", over_nfs)
    image(cache, "a")

    with cache.locked("a", "image"):
        assert cache.shrink(limit=0) == 10

    assert cache.images() == []


def test_shrinking_keeps_the_new_image(cache: Cache) -> None:
    made = image(cache, "large", size=1000, age=500)

    cache.shrink(limit=10, keep=made)

    assert cache.images() == [made]


def test_shrinking_removes_unused_layers_after_a_day(cache: Cache) -> None:
    image(cache, "a", blobs="wanted\n")
    yesterday = time.time() - 90_000
    for name, age in (("wanted", yesterday), ("unwanted", yesterday), ("new", time.time())):
        blob = cache.path / "blobs/sha256" / name
        blob.touch()
        os.utime(blob, (age, age))

    cache.shrink(limit=1000)

    assert sorted(path.name for path in (cache.path / "blobs/sha256").iterdir()) == [
        "new",
        "wanted",
    ]


def test_shrinking_removes_unfinished_imports_after_a_day(cache: Cache) -> None:
    for name in ("old", "new"):
        (cache.path / "temporary" / name).mkdir()
    os.utime(cache.path / "temporary/old", (0, 0))

    cache.shrink(limit=1000)

    assert [path.name for path in (cache.path / "temporary").iterdir()] == ["new"]


def test_shrinking_continues_if_an_unfinished_import_cannot_be_removed(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (cache.path / "temporary" / name).mkdir()
        os.utime(cache.path / "temporary" / name, (0, 0))

    def failing(path: Path) -> None:
        if path.name == "b":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        remove(path)

    monkeypatch.setattr(cache_module, "remove", failing)

    cache.shrink(limit=1000)

    assert [path.name for path in (cache.path / "temporary").iterdir()] == ["b"]


def test_failed_record_leaves_no_file(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "utime", full)

    with pytest.raises(OSError, match="No space left"):
        cache.record("x", "a", fresh_for=1)

    assert list((cache.path / "temporary").iterdir()) == []


# --- Files ----------------------------------------------------------------------------------------


def test_import_clears_setuid_bits_and_makes_directories_accessible(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    program = tmp_path / "program"
    program.write_text("x")
    program.chmod(0o6755)
    closed.chmod(0o2050)

    total = settle(tmp_path)

    assert program.stat().st_mode & 0o7777 == 0o755
    assert closed.stat().st_mode & 0o7777 == 0o750
    assert total >= 512


def test_import_and_removal_follow_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o4755)
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)

    settle(root)
    remove(root)

    assert outside.stat().st_mode & 0o7777 == 0o4755


def test_remove_deletes_directories_that_have_no_permissions(own: Path) -> None:
    inner = own / "tree/closed/inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (inner / "link").symlink_to(own)
    inner.chmod(0)
    inner.parent.chmod(0)

    remove(own / "tree")

    assert not (own / "tree").exists()
    assert own.exists()


@needs_root
def test_remove_reports_a_file_that_the_user_may_not_delete(own: Path) -> None:
    closed = own / "tree/closed"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    with as_user(os.getuid()):
        os.chown(closed, 0, -1)

    with pytest.raises(PermissionError):
        remove(own / "tree")


def test_layers_of_the_site_are_linked_and_add_no_size(cache: Cache, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "sha256").mkdir(parents=True)
    (site / "sha256/shared").write_bytes(bytes(100))
    own = cache.path / "blobs/sha256/own"
    own.write_bytes(bytes(10))

    cache.link(site, ["shared", "own", "nowhere"])

    made = image(cache, "a", blobs="shared\nown\nnowhere\n")
    assert (cache.path / "blobs/sha256/shared").read_bytes() == bytes(100)
    assert not (cache.path / "blobs/sha256/nowhere").exists()
    assert cache.size_of_new(made, known=()) == 10


def test_dangling_link_to_a_site_layer_is_replaced_or_removed(cache: Cache, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "sha256").mkdir(parents=True)
    link = cache.path / "blobs/sha256/gone"
    link.symlink_to(site / "sha256/elsewhere")
    os.utime(link, (0, 0), follow_symlinks=False)
    (site / "sha256/gone").touch()

    cache.link(site, ["gone"])
    assert link.exists()

    (site / "sha256/gone").unlink()
    os.utime(link, (0, 0), follow_symlinks=False)
    cache.shrink(0)
    assert not link.is_symlink()
