"""Sets of backups of folders, and restores from them."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agents.backup.files import MARK
from components import conventions as c
from tests.support.backups import FOLDERS, PARTS, PASSWORD, ROOT, STORE, Box, box
from tests.support.containers import Start, containers, put
from tests.support.waiting import eventually

JAIL = FOLDERS["jail"]
LATEST = {"RESTORE": "latest"}
MAKE = r"""
import os, socket, subprocess
top = "%s"
def write(path, content=b"x", mode=0o644, owner=(0, 0)):
    path = f"{top}/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chown(path, *owner)
    os.chmod(path, mode)
    return path
write("home/ada/secret", b"mine", 0o600, (2000, 2000))
write("home/ada/ünï cödé\n", b"odd name", 0o644, (2000, 2000))
write("home/ada/.cache/big", b"c" * 1000, 0o644, (2000, 2000))
write("home/grace/none", b"", 0o000, (2001, 2001))
write("usr/bin/ping", b"program", 0o4755)
os.setxattr(write("usr/bin/cap"), "security.capability",
            bytes.fromhex("0100000200200000000000000000000000000000"))
os.setxattr(write("home/ada/tagged", owner=(2000, 2000)), "user.tag", b"value")
write("shared/sticky/file"); os.chmod(f"{top}/shared/sticky", 0o3777)
os.link(write("home/ada/one"), f"{top}/home/ada/two")
os.symlink("/etc/shadow", f"{top}/home/ada/link")
os.symlink("nowhere", f"{top}/home/ada/dangling")
os.lchown(f"{top}/home/ada/link", 2000, 2000)
os.mkfifo(f"{top}/home/ada/fifo")
os.makedirs(f"{top}/home/empty", exist_ok=True)
with open(f"{top}/home/ada/sparse", "wb") as file:
    file.truncate(256 * 1024 * 1024)
    file.seek(128 * 1024 * 1024)
    file.write(b"island")
with open(f"{top}/home/ada/large", "wb") as file:
    file.write(os.urandom(40 * 1024 * 1024))
os.utime(f"{top}/home/ada/large", ns=(1, 1_500_000_000_123_456_789))
write("tmp/left-out")
"""
"""Python program that makes files of all kinds in a folder."""
LIST = r"""
import hashlib, json, os, stat
top, found, links = "%s", {}, {}
for place, folders, names in os.walk(top):
    for name in folders + names:
        path = os.path.join(place, name)
        one = os.lstat(path)
        entry = [stat.filemode(one.st_mode), one.st_uid, one.st_gid]
        if not stat.S_ISDIR(one.st_mode):
            entry += [one.st_size, one.st_mtime_ns, one.st_nlink]
        if stat.S_ISREG(one.st_mode):
            with open(path, "rb") as file:
                entry.append(hashlib.file_digest(file, "sha256").hexdigest())
        if stat.S_ISLNK(one.st_mode):
            entry.append(os.readlink(path))
        entry.append({key: os.getxattr(path, key, follow_symlinks=False).hex()
                      for key in os.listxattr(path, follow_symlinks=False)})
        found[path[len(top):]] = entry
print(json.dumps(found))
"""
"""Python program that prints contents and metadata of all files of a folder."""


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with containers("backup-sets") as start:
        yield start


@pytest.fixture(scope="module")
def shared(start: Start) -> Box:
    return box(start)


@pytest.fixture
def backups(shared: Box) -> Box:
    """A container with empty folders and an empty store."""
    shared.empty()
    shared.shell(f"rm -rf {STORE}/*")
    return shared


def fill(box: Box, folder: str = JAIL) -> dict[str, Any]:
    put(box.container, {"/tmp/make.py": MAKE % folder})
    box.shell("python3 /tmp/make.py")
    return listing(box, folder)


def listing(box: Box, folder: str = JAIL) -> dict[str, Any]:
    put(box.container, {"/tmp/list.py": LIST % folder})
    found: dict[str, Any] = json.loads(box.shell("python3 /tmp/list.py"))
    return found


def blocks(box: Box) -> int:
    """Return the KiB that the sparse file uses on disk."""
    return int(box.shell(f"du -k {JAIL}/home/ada/sparse").split()[0])


def test_restored_files_are_identical(backups: Box) -> None:
    wanted = fill(backups)
    projects = FOLDERS["projects"]
    backups.shell(f"echo data >{projects}/file; chmod 1777 {projects}; chgrp 2000 {projects}")
    output = backups.back_up("before-upgrade")
    backups.empty()
    backups.shell(f"chmod 755 {projects}; chgrp 0 {projects}")

    restored = backups.restore()

    del wanted["/tmp/left-out"]
    assert listing(backups) == wanted
    assert backups.shell(f"cat {projects}/file; stat -c '%a %g' {projects}") == "data\n1777 2000"
    assert blocks(backups) < 1024, "the restored file still has holes"
    assert "the set 'before-upgrade' is complete" in output
    assert "jail: restored from the set 'before-upgrade'" in restored


def test_second_run_stores_only_changes(backups: Box) -> None:
    fill(backups)
    backups.back_up("first")
    backups.shell(f"echo more >>{JAIL}/home/ada/secret")

    output = backups.back_up("second")

    assert "of which 0 MiB were new" in output.splitlines()[1], output


def test_folder_with_files_is_not_restored(backups: Box) -> None:
    fill(backups)
    backups.back_up("first")
    backups.empty()
    backups.shell(f"echo new >{JAIL}/new")

    output = backups.restore()

    assert "jail: has files, so nothing is restored" in output
    assert [*listing(backups)] == ["/new"]


def test_mark_of_a_user_does_not_restore_old_files(backups: Box) -> None:
    """Users may write into the root of a volume, so they can make a file with the mark's name."""
    projects = FOLDERS["projects"]
    backups.shell(f"echo old >{projects}/file; chmod 1777 {projects}")
    backups.back_up("first")
    backups.shell(f"echo new >{projects}/file")
    backups.shell(f"echo first >{projects}/{MARK}; chown 2000 {projects}/{MARK}")

    assert "projects: has files, so nothing is restored" in backups.restore()
    assert backups.shell(f"cat {projects}/file") == "new"


def test_no_set_is_made_during_a_restore(backups: Box) -> None:
    code, output = backups.run(f"set-files {PARTS}", SET="first", RESTORE="latest")

    assert code == 1
    assert output.startswith("backup: no sets are made while 'backup.restore' is set")


@pytest.mark.parametrize("pause", [0.8, 1.6])
def test_killed_restore_continues_in_the_next_run(backups: Box, pause: float) -> None:
    wanted = fill(backups)
    backups.back_up("first", EXCLUDE="")
    backups.empty()
    backups.begin("restore-files jail=/mnt/jail", RESTORE="latest")
    time.sleep(pause)
    backups.kill()

    backups.restore()

    assert listing(backups) == wanted


@pytest.mark.parametrize("pause", [1.0, 3.0])
def test_killed_backup_leaves_no_complete_set(backups: Box, pause: float) -> None:
    wanted = fill(backups)
    backups.back_up("first", EXCLUDE="")
    backups.shell(f"head -c 80M /dev/urandom >{JAIL}/home/ada/noise")
    backups.begin("set-files jail=/mnt/jail", SET="second")
    time.sleep(pause)
    backups.kill()
    backups.empty()

    output = backups.restore()

    if "the set 'first'" in output:
        assert listing(backups) == wanted
    else:
        assert listing(backups).keys() - wanted.keys() == {"/home/ada/noise"}
    assert "no errors were found" in backups.restic("check --read-data --no-lock")


def test_sets_that_are_not_kept_are_removed(backups: Box) -> None:
    backups.shell(f"echo 1 >{JAIL}/file")
    for identity in ("first", "second", "third"):
        code, output = backups.run(
            f"set-files state={c.JAIL_VOLUMES}/jail-projects jail={c.JAIL}",
            SET=identity,
            KEEP="--keep-last=2",
        )
        assert code == 0, output

    found = json.loads(backups.restic("snapshots --json"))
    assert sorted({tag for one in found for tag in one["tags"] if tag.startswith("set=")}) == [
        "set=second",
        "set=third",
    ]
    assert len(found) == 6


def test_changed_files_are_reported(backups: Box) -> None:
    backups.shell(f"head -c 30M /dev/urandom >{JAIL}/large; echo quiet >{JAIL}/quiet; sleep 2")
    backups.container.exec_run(
        ["bash", "-c", f"cd {JAIL}; while [ -e quiet ]; do date >>log; sleep 0.1; done"],
        detach=True,
    )

    output = backups.back_up("first")

    backups.shell(f"rm {JAIL}/quiet")
    assert "files that changed during the backup: 1 (/log)" in output


def test_no_file_of_the_container_is_below_the_root_of_restic(backups: Box) -> None:
    """Users can make restic open any path below its root, so no file there may be secret."""
    backups.shell(f"head -c 80M /dev/urandom >{JAIL}/noise")
    backups.begin(f"set-files jail={c.JAIL}", SET="first")
    eventually("restic runs", lambda: backups.shell("pgrep -c -x restic || true") != "0")

    found = backups.shell(
        f"grep -rlF {PASSWORD} {ROOT} || true; find {ROOT} -xdev -type f; ls {ROOT}"
    )

    backups.kill()
    files = [line for line in found.splitlines() if line.startswith("/")]
    allowed = ("/usr/bin/restic", "/lib", "/etc/ssl", "/tmp/", f"{c.BACKUP_RUN}/", "/usr/lib")
    assert not [f for f in files if not f.removeprefix(ROOT).startswith(allowed)], files
    assert "proc" not in found.splitlines()


def test_files_behind_a_users_link_are_not_backed_up(backups: Box) -> None:
    """A user swaps a folder and a link to a folder of the container while restic reads."""
    put(backups.container, {"/etc/slurmstack/other/password": "not-for-users"})
    backups.shell(
        f"mkdir -p {JAIL}/home/eve/swap {JAIL}/home/eve/many; cd {JAIL}/home/eve;"
        " for i in $(seq 3000); do echo $i >many/$i; done; cp many/* swap/; echo 1 >swap/password;"
        " ln -s /etc/slurmstack/other link"
    )
    swap = "mv -T swap away; mv -T link swap; mv -T swap link; mv -T away swap"
    backups.container.exec_run(
        ["bash", "-c", f"cd {JAIL}/home/eve; touch on; while [ -e on ]; do {swap}; done"],
        detach=True,
    )
    for identity in ("first", "second"):
        backups.back_up(identity)
    backups.shell(f"rm {JAIL}/home/eve/on; sleep 0.2")

    for identity in ("first", "second"):
        backups.empty()
        assert f"jail: restored from the set '{identity}'" in backups.restore(RESTORE=identity)
        assert backups.shell(f"grep -rlF not-for-users {JAIL} || true") == ""


def test_errors_of_the_store_have_one_line(start: Start) -> None:
    fresh = box(start)
    fresh.shell(f"echo 1 >{JAIL}/file")
    code, output = fresh.run(f"restore-files jail={c.JAIL}", RESTORE="latest")
    assert code == 0
    assert "has files" in output
    fresh.empty()

    code, output = fresh.run(f"restore-files jail={c.JAIL}", RESTORE="latest")
    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith(f"restore: cannot open the store {c.BACKUP_DATA}/sets/test: ")

    fresh.back_up("first")
    fresh.empty()
    code, output = fresh.run(f"restore-files jail={c.JAIL}", RESTORE="nightly")
    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith("restore: the store has no complete set 'nightly'")

    put(fresh.container, {f"{c.BACKUP_PASSWORD}/password": "wrong"})
    for command, chosen in (("set-files", {"SET": "second"}), ("restore-files", LATEST)):
        code, output = fresh.run(f"{command} jail={c.JAIL}", **chosen)
        assert (code, len(output.splitlines())) == (1, 1), output
        assert "wrong password" in output


def test_full_store_fails_with_one_line_and_keeps_its_sets(start: Start) -> None:
    small = box(start, tmpfs={STORE: "size=20m"})
    small.shell(f"echo 1 >{JAIL}/file")
    small.back_up("first")
    small.shell(f"head -c 40M /dev/urandom >{JAIL}/noise")

    code, output = small.run(f"set-files jail={c.JAIL}", SET="second")

    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith("backup: cannot back up jail: ")
    assert output.endswith("no space left on device")
    small.shell(f"rm {JAIL}/noise")
    small.empty()
    assert "restored from the set 'first'" in small.restore()


def test_locked_store_is_waited_for(backups: Box) -> None:
    backups.shell(f"head -c 60M /dev/urandom >{JAIL}/noise")
    backups.back_up("first")
    backups.begin("set-files jail=/mnt/jail", SET="second")
    code, output = backups.run(f"set-files jail={c.JAIL}", SET="third")

    assert code == 0, output
    eventually("both sets exist", lambda: "second" in backups.restic("snapshots --no-lock"))
