"""Containers are saved as squashfs files, even if other users can change the output directory."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.containers import save
from agents.containers.errors import ImageError
from agents.containers.surroundings import Surroundings, of_files

Program = Callable[[Sequence[str]], None]


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """Create a container of an image without settings, as start-container does."""
    image, container = tmp_path / "image", tmp_path / "container"
    (image / "root").mkdir(parents=True)
    for name, text in (("environment", ""), ("entrypoint", ""), ("directory", "/")):
        (image / name).write_text(text)
    container.mkdir(mode=0o700)
    (container / "image").write_text(str(image))
    return container


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Create a directory in which the members of a group can replace each other's files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    return folder


@pytest.fixture
def mksquashfs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Program], None]:
    """Return a function that sets the program to run instead of mksquashfs."""

    def use(program: Program) -> None:
        def run(command: Sequence[str], **_: Any) -> str:
            program(command)
            return ""

        monkeypatch.setattr(save, "run", run)

    return use


def output_of(command: Sequence[str]) -> Path:
    """Return the path of the file that the command writes."""
    return Path(command[command.index("-noappend") - 1])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_saved_file_has_the_targets_name_and_is_readable(
    container: Path, shared: Path, mksquashfs: Callable[[Program], None]
) -> None:
    def program(command: Sequence[str]) -> None:
        output_of(command).write_bytes(bytes(1000))

    mksquashfs(program)

    assert save.save(container, shared / "x.sqsh") == (
        f"saved the container as {shared}/x.sqsh, 1.0 kB"
    )
    assert (shared / "x.sqsh").read_bytes() == bytes(1000)
    assert (shared / "x.sqsh").stat().st_mode & 0o777 == 0o644
    assert names(shared) == ["x.sqsh"]


SURROUNDINGS = Surroundings(
    variables=(
        "PLAIN=a b",
        "MANY=a\nINJECTED=1\nit's $HOME",
        "SPACES= a ",
        "FORM=a\fB=c",
        "EMPTY=",
    ),
    directory='/a "b" $(touch x) `c` \\ it\'s\ncd "/d"',
    entrypoint=("sh", "-c", 'printf "%s|%s|%s" "$MANY" "$SPACES" "$1"', "it's"),
)


@pytest.fixture
def saved(container: Path, shared: Path, mksquashfs: Callable[[Program], None]) -> Path:
    """Save a container. Return a directory that contains the files which mksquashfs would add."""
    root = container.parent / "saved"
    (root / "etc").mkdir(parents=True)

    def program(command: Sequence[str]) -> None:
        folder = Path(command[command.index("-pf") + 1]).parent
        for name in ("rc", "environment"):
            shutil.copy(folder / name, root / "etc")

    SURROUNDINGS.write(Path((container / "image").read_text()))
    mksquashfs(program)
    save.save(container, shared / "x.sqsh")
    return root


def test_saved_variables_and_directory_are_read_again(saved: Path) -> None:
    found = of_files(saved)

    assert found.directory == SURROUNDINGS.directory
    assert sorted(found.variables) == sorted(SURROUNDINGS.variables)


def test_saved_script_sets_the_directory_and_variables_in_a_shell(saved: Path) -> None:
    """enroot runs this script. Stand-ins for cd and mkdir show their arguments."""
    script = (saved / "etc/rc").read_text()
    show = "mkdir() { exit 9; }; cd() { printf '%s|' \"$1\"; }\n"

    result = subprocess.run(
        ["sh", "-c", f"{show}{script}", "rc", "two words"],
        cwd=saved,
        env={"PATH": os.environ["PATH"], "SPACES": "mine"},
        capture_output=True,
        text=True,
        check=True,
    )

    directory = SURROUNDINGS.directory
    lines = "a\nINJECTED=1\nit's $HOME"
    assert result.stdout == f"{directory}|{directory}|{lines}|mine|two words"
    assert not (saved / "x").exists()


def test_commands_of_a_save_are_not_in_the_output_directory(
    container: Path, shared: Path, mksquashfs: Callable[[Program], None]
) -> None:
    """mksquashfs reads these commands from a file (option `-pf`). In the output directory, other
    users could replace this file."""
    seen = []

    def program(command: Sequence[str]) -> None:
        seen.append(Path(command[command.index("-pf") + 1]))
        assert [path.is_file() for path in shared.iterdir()] == [True]

    mksquashfs(program)

    save.save(container, shared / "x.sqsh")

    assert seen[0].is_relative_to(container)


def test_saving_follows_no_link_of_another_user(
    container: Path, shared: Path, tmp_path: Path, mksquashfs: Callable[[Program], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")

    def program(command: Sequence[str]) -> None:
        for path in shared.iterdir():
            path.rename(shared / "away")
            path.symlink_to(victim)
        output_of(command).write_text("image")

    mksquashfs(program)

    with pytest.raises(ImageError, match="another user replaced the file"):
        save.save(container, shared / "x.sqsh")

    assert victim.read_text() == "mine"
    assert not (shared / "x.sqsh").is_symlink()


def test_saving_ignores_a_directory_that_replaced_the_output_directory(
    container: Path, shared: Path, tmp_path: Path, mksquashfs: Callable[[Program], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.sqsh").write_text("mine")

    def program(command: Sequence[str]) -> None:
        shared.rename(tmp_path / "away")
        shared.symlink_to(elsewhere)
        output_of(command).write_text("image")

    mksquashfs(program)

    save.save(container, shared / "x.sqsh")

    assert (elsewhere / "x.sqsh").read_text() == "mine"
    assert (tmp_path / "away/x.sqsh").read_text() == "image"


def test_failed_save_leaves_no_file(
    container: Path, shared: Path, mksquashfs: Callable[[Program], None]
) -> None:
    def program(command: Sequence[str]) -> None:
        raise ImageError("no space")

    mksquashfs(program)

    with pytest.raises(ImageError, match="no space"):
        save.save(container, shared / "x.sqsh")

    assert names(shared) == []
    assert names(container) == ["image"]


def test_program_inherits_the_descriptor_of_the_saved_file(
    container: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit test cannot mount, so a stand-in replaces unshare. It writes to the saved file."""
    programs = container.parent / "programs"
    programs.mkdir()
    # The output is the argument after "sh -c SCRIPT sh".
    (programs / "unshare").write_text(
        '#!/bin/sh\nwhile [ "$1" != -c ]; do shift; done\necho x >"$4"\n'
    )
    (programs / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    save.save(container, shared / "x.sqsh")

    assert (shared / "x.sqsh").read_text() == "x\n"
