"""An image's tag depends only on the files that the image's build reads."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from images import tags

EVERY_IMAGE = sorted(tags.IMAGES)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small repository that has a build context for every image."""
    root = tmp_path / "checkout"
    for name in tags.IMAGES:
        write(root / "images" / name / "Dockerfile", "FROM scratch\n")
    write(root / "images/worker/slurmd", "#!/bin/sh\n").chmod(0o755)
    write(root / "images/login/etc/sshd_config", "UsePAM no\n")
    write(root / "images/base/watch", "pause() { read -rt 1; }\n")
    write(root / "spank/chroot.c", "int plugin;\n")
    write(root / "spank/containers/plugin.c", "int plugin;\n")
    write(root / "spank/Makefile", "all:\n")
    write(root / "agents/__init__.py", "")
    write(root / "agents/backup/__init__.py", "")
    write(root / "agents/bridge/__init__.py", "")
    write(root / "agents/checks/__init__.py", "")
    write(root / "agents/containers/__init__.py", "")
    for module in (
        "bpf",
        "bridge/proof",
        "bridge/wait",
        "cgroups",
        "confine",
        "cpus",
        "drains",
        "gpus",
        "homes",
        "keep_slurmd",
        "mounts",
        "node",
        "populate",
        "say",
        "tree",
    ):
        write(root / f"agents/{module}.py", "pass\n")
    write(root / "images/debian/snapshot", "20261120T000000Z\n")
    return root


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def all_tags(root: Path) -> dict[str, str]:
    return {name: tags.tag(name, root) for name in tags.IMAGES}


def changed(root: Path, edit: Callable[[], object]) -> set[str]:
    """Return the names of the images whose tags the edit changes."""
    before = all_tags(root)
    edit()
    return {name for name, tag in all_tags(root).items() if tag != before[name]}


def with_parent(parent: str) -> set[str]:
    return {name for name in tags.IMAGES if parent in tags.lineage(name)}


def test_tag_has_twelve_hexadecimal_digits(checkout: Path) -> None:
    for tag in all_tags(checkout).values():
        assert len(tag) == 12
        assert set(tag) <= set("0123456789abcdef")


def test_changed_file_changes_only_the_tag_of_its_image(checkout: Path) -> None:
    file = checkout / "images/login/etc/sshd_config"
    assert changed(checkout, lambda: file.write_text("UsePAM yes\n")) == {"login"}


def test_executable_bit_of_a_file_changes_the_tag(checkout: Path) -> None:
    file = checkout / "images/worker/slurmd"
    assert changed(checkout, lambda: file.chmod(0o644)) == {"worker"}


def test_renamed_or_new_file_changes_the_tag(checkout: Path) -> None:
    file = checkout / "images/worker/slurmd"
    assert changed(checkout, lambda: file.rename(file.with_name("start"))) == {"worker"}
    new = checkout / "images/worker/conf.d/limits"
    assert changed(checkout, lambda: write(new, "")) == {"worker"}


def test_changed_parent_changes_the_tags_of_its_children(checkout: Path) -> None:
    dockerfile = checkout / "images/base/Dockerfile"
    assert changed(checkout, lambda: dockerfile.write_text("FROM debian\n")) == with_parent("base")


def test_changed_file_of_another_folder_changes_the_tag(checkout: Path) -> None:
    plugin = checkout / "spank/chroot.c"
    assert changed(checkout, lambda: plugin.write_text("int other;\n")) == with_parent("base")
    agent = checkout / "agents/reconciler/drain.py"
    assert changed(checkout, lambda: write(agent, "pass\n")) == {"agents"}


def test_swapped_contents_of_two_files_change_the_tag(checkout: Path) -> None:
    first = write(checkout / "images/jail/a", "one\n")
    second = write(checkout / "images/jail/b", "two\n")

    def swap() -> None:
        first.write_text("two\n")
        second.write_text("one\n")

    assert changed(checkout, swap) == {"jail"}


@pytest.mark.parametrize(
    "junk",
    [
        "images/worker/.slurmd.swp",
        "images/worker/slurmd~",
        "images/worker/.DS_Store",
        "images/worker/__pycache__/x.txt",
        "agents/__pycache__/homes.cpython-311.pyc",
        "agents/homes.pyc",
        "agents/.mypy_cache/3.11/cache.json",
        "spank/chroot.o",
        "spank/chroot.so",
        "images/base/chroot.so",
        "spank/tests/test_chroot",
        "notes.txt",
    ],
)
def test_tag_ignores_files_that_tools_leave_behind(checkout: Path, junk: str) -> None:
    assert changed(checkout, lambda: write(checkout / junk, "junk")) == set()


def test_tag_ignores_file_times_and_permissions_of_the_checkout(checkout: Path) -> None:
    def touch_all() -> None:
        for path in checkout.rglob("*"):
            os.utime(path, (1, 1))
            if path.is_file():
                path.chmod(path.stat().st_mode & 0o700)

    assert changed(checkout, touch_all) == set()


def test_second_checkout_has_the_same_tags(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "somewhere/else"
    shutil.copytree(checkout, other)
    assert all_tags(other) == all_tags(checkout)


def test_context_is_sorted_and_lists_extra_files_by_path(checkout: Path) -> None:
    names = list(tags.context_files("base", checkout))
    assert names == [
        *("Dockerfile", "agents/__init__.py", "agents/containers/__init__.py", "spank/Makefile"),
        *("spank/chroot.c", "spank/containers/plugin.c", "watch"),
    ]
    modules = ("__init__", "confine", "homes", "mounts", "populate", "tree")
    assert list(tags.context_files("login", checkout)) == [
        *("Dockerfile", *(f"agents/{module}.py" for module in modules), "etc/sshd_config"),
    ]


def test_image_reference_includes_the_registry_if_set(checkout: Path) -> None:
    tag = tags.tag("worker", checkout)
    assert tags.reference("worker", None, checkout) == f"slurmstack/worker:{tag}"
    for registry in ("registry.example.com/team", "registry.example.com/team/"):
        expected = f"registry.example.com/team/slurmstack/worker:{tag}"
        assert tags.reference("worker", registry, checkout) == expected


def test_error_for_an_unknown_image_lists_the_known_images() -> None:
    with pytest.raises(
        tags.ContextError, match=r"image 'wroker': there is no such image; expected one of .*worker"
    ):
        tags.tag("wroker")


def test_error_names_a_missing_dockerfile(checkout: Path) -> None:
    (checkout / "images/jail/Dockerfile").unlink()
    with pytest.raises(tags.ContextError, match=r"images/jail/Dockerfile is missing"):
        tags.tag("jail", checkout)


def test_error_names_a_missing_extra_file(checkout: Path) -> None:
    (checkout / "spank/Makefile").unlink()
    with pytest.raises(tags.ContextError, match=r"image 'base'.*spank/Makefile"):
        tags.tag("worker", checkout)


def test_two_files_of_the_same_name_are_refused(checkout: Path) -> None:
    write(checkout / "images/agents/agents/homes.py", "")
    with pytest.raises(tags.ContextError, match=r"rename images/agents/agents/homes\.py"):
        tags.context_files("agents", checkout)


@pytest.mark.parametrize("name", EVERY_IMAGE)
def test_every_image_of_this_repository_has_a_tag(name: str) -> None:
    assert tags.tag(name) == tags.tag(name)


@pytest.mark.parametrize("name", EVERY_IMAGE)
def test_dockerfile_and_tags_py_agree_on_the_parent_image(name: str) -> None:
    dockerfile = tags.context_files(name)["Dockerfile"].read_text()
    assert ("FROM ${BASE}" in dockerfile) == (tags.IMAGES[name].parent is not None), (
        f"images/{name}/Dockerfile and its parent in images/tags.py disagree"
    )


def test_new_debian_snapshot_changes_every_tag(checkout: Path) -> None:
    snapshot = checkout / "images/debian/snapshot"
    before = tags.snapshot(checkout)

    moved = changed(checkout, lambda: snapshot.write_text("20990101T000000Z\n"))

    assert moved == set(tags.IMAGES)
    assert tags.snapshot(checkout) > before


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20"])
def test_invalid_debian_snapshot_is_refused_in_one_line(checkout: Path, text: str) -> None:
    (checkout / "images/debian/snapshot").write_text(text)

    with pytest.raises(tags.ContextError, match=r"images/debian/snapshot: .*`make snapshot`"):
        tags.snapshot(checkout)
