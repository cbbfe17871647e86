"""Symbolic links never lead out of a tree. Only calls with `links=True` follow links at all."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.tree import FOLDER, Tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside/folder").mkdir(parents=True)
    (tmp_path / "outside/secret").write_text("not the tree's")
    root = tmp_path / "tree"
    (root / "real/folder").mkdir(parents=True)
    (root / "real/file").write_text("the tree's")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to("../outside")
    (root / "inside").symlink_to("/real")
    return root


CHANGES: dict[str, Callable[[Tree, str], object]] = {
    "read": lambda tree, way: tree.read(f"{way}/secret"),
    "open": lambda tree, way: tree.open(f"{way}/secret"),
    "list": lambda tree, way: list(tree.listing(way)),
    "write": lambda tree, way: tree.write(f"{way}/made", "x"),
    "make": lambda tree, way: tree.make_folder(f"{way}/made"),
    "make nested": lambda tree, way: tree.make_folder(f"{way}/made/below"),
    "rename from": lambda tree, way: tree.rename(f"{way}/secret", "taken"),
    "rename to": lambda tree, way: tree.rename("real/file", f"{way}/made"),
    "link": lambda tree, way: tree.link(f"{way}/secret", "taken"),
    "unlink": lambda tree, way: tree.unlink(f"{way}/secret"),
    "rmdir": lambda tree, way: tree.rmdir(f"{way}/folder"),
}


@pytest.mark.parametrize("way", ["out", "up", "inside/../out", "real/../out"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_operation_follows_a_symbolic_link(root: Path, change: str, way: str) -> None:
    outside = root.parent / "outside"
    before = sorted(outside.rglob("*"))

    with pytest.raises(OSError, match=rf"\[Errno ({errno.ELOOP}|{errno.EEXIST}|{errno.ENOTDIR})\]"):
        CHANGES[change](Tree(root), way)

    assert sorted(outside.rglob("*")) == before
    assert (outside / "secret").read_text() == "not the tree's"
    assert (root / "real/file").exists()


@pytest.mark.parametrize("way", ["out", "up", "inside"])
def test_files_behind_a_link_appear_missing(root: Path, way: str) -> None:
    tree = Tree(root)

    assert tree.exists(way)
    assert not tree.is_folder(way)
    assert not tree.exists(f"{way}/secret")
    assert not tree.exists(f"{way}/file")


def test_links_that_are_followed_stay_in_the_tree(root: Path) -> None:
    tree = Tree(root)

    with tree.opened("inside/file", links=True) as file:
        assert os.read(file, 100) == b"the tree's"
    for way in ("out", "up", "inside/../../outside", "../outside"):
        with pytest.raises(FileNotFoundError):
            tree.open(f"{way}/secret", links=True)


def test_operations_apply_to_a_link_and_not_to_its_target(root: Path) -> None:
    tree = Tree(root)
    tree.link("out", "real/another")
    tree.rename("up", "real/up")
    tree.unlink("out")

    assert (root / "real/another").is_symlink()
    assert (root / "real/up").is_symlink()
    assert (root.parent / "outside/secret").exists()


def test_removal_keeps_the_targets_of_links(root: Path) -> None:
    (root / "real/out").symlink_to(root.parent / "outside")
    Tree(root).remove("real")

    assert not (root / "real").exists()
    assert (root.parent / "outside/secret").exists()


def test_listing_includes_links_but_not_their_targets(
    root: Path,
) -> None:
    (root / "real/folder/out").symlink_to(root.parent / "outside")

    assert sorted(Tree(root).listing("real")) == ["file", "folder", "folder/out"]


def test_file_is_written_completely_or_not_at_all(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="full"):
            Tree(root).write("real/file", "half")
    assert (root / "real/file").read_text() == "the tree's"
    Tree(root).write("real/file", "whole")
    assert (root / "real/file").read_text() == "whole"


def test_operation_that_races_with_a_link_stays_in_the_tree(root: Path) -> None:
    """Repeat the operation until it has met the directory, the link, and a moment without either.

    Without the pauses in `swap`, the test would rarely see the link on a busy machine.
    """
    tree, over = Tree(root), threading.Event()

    def swap() -> None:
        while not over.is_set():
            (root / "real").rename(root / "away")
            (root / "real").symlink_to(root.parent / "outside")
            time.sleep(1e-5)
            (root / "real").unlink()
            (root / "away").rename(root / "real")
            time.sleep(1e-5)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[str] = set()
    end = time.monotonic() + 60
    try:
        while not {"file", "ELOOP", "ENOENT"} <= seen and time.monotonic() < end:
            try:
                with tree.opened("real", FOLDER) as fd:
                    seen.update(os.listdir(fd))  # noqa: PTH208  # a descriptor
            except OSError as error:
                seen.add(errno.errorcode[error.errno or 0])
    finally:
        over.set()
        swapping.join()
    assert seen <= {"file", "folder", "ELOOP", "ENOENT"}
    assert {"file", "ELOOP"} <= seen
