"""Make home directories for users in the jail.

`python3 -m agents.homes USERS JAIL` runs in a Job after each change of the users. USERS is a
passwd(5) file. `python3 -m agents.homes --login NAME JAIL` runs when a user of a directory service
logs in. Both commands leave existing homes unchanged, even with another owner, and remove no home.
"""

import errno
import os
import pwd
import secrets
import shutil
import stat
import sys
from pathlib import Path

from agents.populate import RefusedError, alone, job, room_for
from agents.tree import FOLDER, Tree, by_descriptor

_SKELETON = "etc/skel"
_ROOM = 64 * 1024
"""Approximate size of a new home in bytes."""


def homes(passwd: str) -> list[tuple[str, int, int]]:
    """Return the home directory, uid and gid in each line of a passwd(5) file."""
    entries = (line.split(":") for line in passwd.splitlines())
    return [(home, int(uid), int(gid)) for _, _, uid, gid, _, home, _ in entries]


def make_home(jail: Tree, home: str, uid: int, gid: int, mark: str = "new") -> bool:
    """Make a home from the jail's /etc/skel, private to its user. Returns False if it exists.

    An incomplete home has a hidden name that ends in `mark`. This function first removes what an
    interrupted run with the same mark has left. It follows symbolic links in the home's path,
    because a site may have /home elsewhere. It never follows a link out of the jail.
    """
    _make_above(jail, home)
    with jail.parent(home, links=True) as (folder, name):
        # Inside the folder, follow no link: a user may own the folder.
        above = Tree(Path(by_descriptor(folder)))
        if above.exists(name):
            return False
        unfinished = f".{name}.{mark}"
        above.remove(unfinished)
        try:
            with room_for(home, folder, _ROOM, "existing homes are unchanged"):
                _make(jail, folder, unfinished, uid, gid)
                above.rename(unfinished, name)
        except BaseException as error:
            above.remove(unfinished)
            if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False  # another login node has made the home meanwhile
            raise
    return True


def _make_above(jail: Tree, home: str) -> None:
    try:
        with jail.parent(home, links=True):
            pass
    except FileNotFoundError:
        jail.make_folder(home.rpartition("/")[0])


def _make(jail: Tree, folder: int, name: str, uid: int, gid: int) -> None:
    """Make a home in an open folder. A user may own this folder."""
    os.mkdir(name, 0o700, dir_fd=folder)
    home = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        made = os.fstat(home)
        # The owner of the parent folder can replace the new directory at any moment. Only root can
        # own and enter the genuine directory until the chown below.
        if made.st_uid != os.geteuid() or made.st_mode & 0o077:
            raise RefusedError(
                f"home directory {name}: another user replaced this new directory while it "
                "was made; make root the owner of the folder that contains it"
            )
        if jail.is_folder(_SKELETON):
            with jail.opened(_SKELETON, FOLDER) as skeleton:
                _copy(skeleton, home, uid, gid)
        os.chown(home, uid, gid)
    finally:
        os.close(home)


def _copy(source: int, target: int, uid: int, gid: int) -> None:
    """Copy the contents of an open folder to another one, and make a user their owner."""
    for entry in os.scandir(source):
        name, mode = entry.name, stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
        if entry.is_symlink():
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.chown(name, uid, gid, dir_fd=target, follow_symlinks=False)
        elif entry.is_dir():
            os.mkdir(name, mode, dir_fd=target)
            given = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=source)
            made = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=target)
            try:
                _copy(given, made, uid, gid)
                os.chown(made, uid, gid)
                os.fchmod(made, mode)
            finally:
                os.close(given)
                os.close(made)
        elif entry.is_file():
            created = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            given = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=source)
            with (
                os.fdopen(given, "rb") as old,
                os.fdopen(os.open(name, created, mode, dir_fd=target), "wb") as new,
            ):
                shutil.copyfileobj(old, new)
                os.chown(new.fileno(), uid, gid)
                os.fchmod(new.fileno(), mode)


def first_login(jail: Tree, name: str) -> int:
    """Make the home of one user, and return an exit code. Prints the reason of a failure."""
    # Do not parse passwd lines: users of a directory service may put colons into their names.
    entry = pwd.getpwnam(name)
    try:
        # Two login nodes may make the same home at the same time, so each login uses its own mark.
        # Do not wait for the lock that the Job holds: this would delay logins.
        make_home(jail, entry.pw_dir, entry.pw_uid, entry.pw_gid, secrets.token_hex(4))
    except (RefusedError, OSError) as error:
        print(
            f"Cannot make your home directory: {error}; send this message to the cluster operator"
        )
        return 1
    return 0


def main(arguments: list[str]) -> int:
    *login, users, root = arguments
    jail = Tree(Path(root))
    if login:
        return first_login(jail, users)

    def work() -> str:
        with alone(jail):
            for home, uid, gid in homes(Path(users).read_text()):
                made = make_home(jail, home, uid, gid)
                print(f"home directory {home}: {'made' if made else 'already exists'}")
        return "every user of the settings has a home directory"

    return job("cannot make the home directories", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
