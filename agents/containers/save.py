"""Save a container as a squashfs file that enroot and Pyxis can also read."""

import contextlib
import os
import secrets
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agents.containers import surroundings
from agents.containers.errors import ImageError
from agents.containers.watch import Progress, run, size

_MODE: Final = 0o644
_SCRIPT: Final = """
set -eu
mount -t overlay -o userxattr,lowerdir=upper:image-root overlay root
exec mksquashfs root "$@"
"""
"""Script that writes the squashfs file. It runs in a user namespace in which the user is root,
because root owns and can read all files of the container."""


def save(container: Path, target: Path) -> str:
    """Save the container to the file `target`, and return one line about the file for the user.

    Replaces the file atomically. `container` is the directory of a container that start-container
    (spank/containers) started. Raises ImageError.
    """
    subject = f"--container-save={target}"
    try:
        image = Path((container / "image").read_text())
        with (
            # mksquashfs runs the commands in the file `pseudo`, so other users must not be able to
            # change this file. Put it into the container's directory, to which only the user can
            # write. Other users may be able to write to the target's directory.
            tempfile.TemporaryDirectory(dir=container, prefix="saving-") as folder,
            _link(container, image / "root"),
            _unfinished(subject, target) as descriptor,
        ):
            pseudo = _write_surroundings(Path(folder), image)
            command = [
                *("unshare", "--user", "--map-root-user", "--mount", "--wd", str(container)),
                *("sh", "-c", _SCRIPT, "sh", f"/proc/self/fd/{descriptor}", "-noappend"),
                *("-no-progress", "-quiet", "-one-file-system", "-pf", str(pseudo)),
            ]
            progress = Progress(f"{subject}: writing")
            run(command, subject=subject, written=progress.reached, descriptors=(descriptor,))
            written = os.fstat(descriptor).st_size
    except OSError as error:
        raise ImageError(f"{subject}: {error.strerror}: check the path") from None
    return f"saved the container as {target}, {size(written)}"


@contextlib.contextmanager
def _unfinished(subject: str, target: Path) -> Iterator[int]:
    """Provide the descriptor of a new file, and give the file the target's name at the end.

    While mksquashfs writes, other users may replace the file or a directory of its path. Therefore,
    this function opens the directory once, and accepts only the file that it has created there.
    """
    folder = os.open(target.parent, os.O_PATH | os.O_DIRECTORY)
    name = f".saving-{secrets.token_hex(8)}"
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        try:
            yield file
            os.fchmod(file, _MODE)
            if not os.path.samestat(
                os.fstat(file), os.stat(name, dir_fd=folder, follow_symlinks=False)
            ):
                raise ImageError(
                    f"{subject}: another user replaced the file while it was written: use a "
                    "directory that only you can write to"
                )
            os.rename(name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        finally:
            os.close(file)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _link(container: Path, root: Path) -> Iterator[None]:
    """Link to the image's root, because its path may contain characters that separate options of
    mount(8)."""
    link = container / "image-root"
    link.unlink(missing_ok=True)
    link.symlink_to(root)
    try:
        yield
    finally:
        link.unlink()


def _write_surroundings(folder: Path, image: Path) -> Path:
    """Write enroot's files /etc/environment and /etc/rc for an image.

    Returns the file that tells mksquashfs to add both files to the squashfs file.
    """
    variables = (image / "environment").read_bytes().decode(errors="replace").split("\0")
    words = (image / "entrypoint").read_bytes().decode(errors="replace").split("\0")
    directory = surroundings.quote((image / "directory").read_text())
    entrypoint = " ".join(shlex.quote(word) for word in words if word)
    # enroot reads one variable from each line of /etc/environment, and ignores spaces at the ends
    # of the line. Export all other variables in /etc/rc.
    lines = [each for each in variables if each and each == each.strip() and "\n" not in each]
    others = [each for each in variables if each and each not in lines]
    (folder / "environment").write_text("".join(f"{each}\n" for each in lines))
    (folder / "rc").write_text(
        "".join(surroundings.export(each) for each in others)
        # The line must start with cd, because surroundings.of_files looks for such a line.
        + f"cd {directory} 2>/dev/null || mkdir -p {directory} 2>/dev/null; "
        f"cd {directory} && unset OLDPWD || exit 1\n"
        "if [ -s /etc/rc.local ]; then . /etc/rc.local; fi\n"
        f'if [ $# -gt 0 ]; then exec {entrypoint} "$@"; else exec {entrypoint or "sh"}; fi\n'
    )
    listed = folder / "pseudo"
    files = {"/etc/environment": (0o644, "environment"), "/etc/rc": (0o755, "rc")}
    listed.write_text(
        "".join(
            f"{path} f {mode:o} 0 0 cat {shlex.quote(str(folder.absolute() / name))}\n"
            for path, (mode, name) in files.items()
        )
    )
    return listed
