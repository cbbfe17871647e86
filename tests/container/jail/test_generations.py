"""The Job that fills the jail, by the jail's real image, refreshed, brought back and cut short."""

import random
import time
from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.container.jail.volumes import Shell, Volumes

USERS = f"""
set -e
cd {c.JAIL}
install -d -o 2000 -g 2000 -m 0700 home/ada
echo 'years of work' >home/ada/thesis
ln -s /home/ada data
echo 'of our site' >etc/site.conf
"""
NEW_IMAGE = """
set -e
echo '#!/bin/sh
echo new' >/usr/bin/tmux
rm -f /usr/bin/less
echo fresh >/usr/share/fresh
ln -sf fresh /usr/share/link-to-fresh
"""
"""Makes another image of the container that the Job runs in."""


@pytest.fixture(scope="module")
def shell(volumes: Volumes) -> Shell:
    """A jail at generation 1, in which somebody works, and the next image."""
    shell = volumes.shell(volumes.make())
    assert shell.populate(1)[0] == 0
    shell.answer(USERS)
    shell.answer(NEW_IMAGE)
    return shell


@pytest.fixture
def filled(shell: Shell) -> Iterator[Shell]:
    yield shell
    code, said = shell.populate(1)
    assert code == 0, said


def test_the_jail_is_the_image_to_the_bit(filled: Shell) -> None:
    changed = filled.answer(
        "rsync --archive --hard-links --one-file-system --checksum --dry-run --itemize-changes "
        "--omit-dir-times --exclude=/mnt --exclude=/proc --exclude=/sys --exclude=/dev "
        "--exclude=/tmp --exclude=/etc/hosts --exclude=/etc/hostname --exclude=/etc/resolv.conf "
        f"--exclude=/.dockerenv / {c.JAIL}/"
    )

    names = {line.split()[1] for line in changed.splitlines()}
    assert names == {"usr/bin/tmux", "usr/share/fresh", "usr/share/link-to-fresh"}


def test_a_refresh_and_the_way_back_while_a_program_runs(filled: Shell) -> None:
    before = filled.contents()
    filled.answer(
        f"(exec {c.JAIL}/usr/bin/python3 -c 'import time; time.sleep(1); import xmlrpc.client; "
        "time.sleep(60)') >/dev/null 2>&1 & sleep 0.2"
    )

    code, said = filled.populate(2)

    assert code == 0, said
    assert filled.answer(f"{c.JAIL}/usr/bin/tmux") == "new"
    assert filled.answer(f"test -e {c.JAIL}/usr/bin/less || echo gone") == "gone"
    assert filled.answer(f"cat {c.JAIL}/etc/site.conf") == "of our site"
    assert filled.answer(f"cat {c.JAIL}/home/ada/thesis") == "years of work"
    assert filled.answer("pgrep -fc '[t]ime.sleep'") == "1"

    code, said = filled.populate(1)

    assert code == 0, said
    assert filled.contents() == before
    assert filled.answer("pgrep -fc '[t]ime.sleep'; pkill -f '[t]ime.sleep'") == "1"


def test_users_do_not_see_what_is_kept(filled: Shell) -> None:
    filled.populate(2)

    code, said = filled.run(f"ls {c.JAIL}/var/lib/slurmstack/generations", user="2000")

    assert code != 0
    assert "Permission denied" in said
    assert "generations" not in filled.answer(f"ls -A {c.JAIL}")


def test_who_is_killed_at_any_moment_leaves_a_jail_that_the_next_run_makes_whole(
    filled: Shell,
) -> None:
    before = filled.contents()
    begun = time.monotonic()
    assert filled.populate(2)[0] == 0
    took = time.monotonic() - begun
    after = filled.contents()
    moment = random.uniform(0, took)

    for wanted, expected in ((1, before), (2, after)):
        code, said = filled.run(
            f"JAIL_REFRESH={wanted} timeout --signal=KILL {moment:.2f} {c.PROGRAMS}/populate"
        )
        assert code in (0, 137), said
        # Whatever there is of it: who is in the jail finds a whole system.
        assert filled.inside("python3 -c 'import ssl; print(1)'") == "1"
        code, said = filled.populate(wanted)
        assert code == 0, said
        assert filled.contents() == expected


# --- Full volumes --------------------------------------------------------------------------------


def test_a_jail_that_does_not_fit_is_refused_and_begins_to_exist_when_it_does(
    volumes: Volumes,
) -> None:
    shell = volumes.shell(volumes.make("100m"))

    code, said = shell.populate(0)

    assert code == c.JAIL_REFUSED, said
    assert "the jail's volume is full: generation 0 needs " in said
    assert " MiB are free; make room or raise jail.size" in said
    assert said.strip() == f"error: {shell.answer('cat /dev/termination-log')}"
    assert shell.answer(f"ls {c.JAIL}/usr 2>/dev/null || echo nothing") == "nothing"


def test_a_refresh_of_a_full_volume_leaves_the_jail_as_it_was(volumes: Volumes) -> None:
    shell = volumes.shell(volumes.make("1200m"))
    assert shell.populate(1)[0] == 0
    shell.answer(f"install -d -o 2000 {c.JAIL}/home/ada")
    shell.answer(NEW_IMAGE)
    before = shell.contents()
    # Whatever the volume says of itself, it is full before the image is unpacked.
    shell.run(
        f"free=$(df --output=avail -BM {c.JAIL} | tr -dc 0-9); "
        f"dd if=/dev/zero of={c.JAIL}/home/data bs=1M count=$((free - 50)); "
        "sed -i 's/if found < needed:/if False:/' /usr/lib/slurmstack/populate"
    )

    code, said = shell.populate(2)

    assert code == c.JAIL_REFUSED, said
    assert said.startswith("error: the jail's volume is full: generation 2 needs")
    shell.answer(f"rm {c.JAIL}/home/data")
    assert shell.contents() == before
    code, said = shell.populate(2)
    assert code == 0, said
    assert shell.answer(f"{c.JAIL}/usr/bin/tmux") == "new"
    shell.run(
        f"free=$(df --output=avail -BM {c.JAIL} | tr -dc 0-9); "
        f"dd if=/dev/zero of={c.JAIL}/home/data bs=1M count=$((free - 30))"
    )
    code, said = shell.populate(1)
    assert code == 0, f"the way back needs next to no room: {said}"
    shell.answer(f"rm {c.JAIL}/home/data")
    assert shell.contents() == before
