"""Gives every configured user a home directory in the jail.

Runs as `python3 -m agents.homes PASSWD JAIL` in a Job after each change of the users. Homes that
are there stay as they are, whoever owns them; nothing is ever removed.
"""

import os
import shutil
import sys
from pathlib import Path

from agents.populate import alone, job, room_for

_ROOM = 64 * 1024
"""Bytes that a new home takes, about."""


def homes(passwd: str) -> list[tuple[str, int, int]]:
    """Home directory, uid and gid of each line of a passwd(5) file."""
    entries = (line.split(":") for line in passwd.splitlines())
    return [(home, int(uid), int(gid)) for _, _, uid, gid, _, home, _ in entries]


def make_home(jail: Path, home: str, uid: int, gid: int) -> bool:
    """Makes one home from the jail's /etc/skel, private to its user; False where it was there.

    The home appears under its name only when it is complete, so that an interrupted run leaves
    nothing half-made behind.
    """
    target = jail / home.lstrip("/")
    if target.exists():
        return False
    unfinished = target.with_name(f".{target.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    skeleton = jail / "etc/skel"
    try:
        with room_for(home, target.parent, _ROOM, "the homes that are there are as they were"):
            if skeleton.is_dir():
                shutil.copytree(skeleton, unfinished, symlinks=True)
            else:
                unfinished.mkdir()
            for path in (unfinished, *unfinished.rglob("*")):
                os.chown(path, uid, gid, follow_symlinks=False)
            unfinished.chmod(0o700)
            unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return True


def main(arguments: list[str]) -> int:
    passwd, jail = map(Path, arguments)

    def work() -> str:
        with alone(jail):
            for home, uid, gid in homes(passwd.read_text()):
                made = make_home(jail, home, uid, gid)
                print(f"{home}: {'made' if made else 'there already'}")
        return "every user has a home"

    return job("homes cannot be made", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
