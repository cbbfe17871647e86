"""The Job that populates the jail, in the real image: refresh, rollback and interruption.

A generation is the set of system files that one refresh copies from the image into the jail. Its
number is the setting `jail.refresh`.
"""

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
"""Commands that change files in the Job's container, which then acts as a newer image."""


@pytest.fixture(scope="module")
def shell(volumes: Volumes) -> Shell:
    """A jail of generation 1 with files of users. The Job's container acts as a newer image."""
    shell = volumes.shell(volumes.make())
    assert shell.populate(1)[0] == 0
    shell.answer(USERS)
    shell.answer(NEW_IMAGE)
    return shell


@pytest.fixture
def filled(shell: Shell) -> Iterator[Shell]:
    yield shell
    code, output = shell.populate(1)
    assert code == 0, output


def test_jail_is_an_exact_copy_of_the_image(filled: Shell) -> None:
    changed = filled.answer(
        "rsync --archive --hard-links --one-file-system --checksum --dry-run --itemize-changes "
        "--omit-dir-times --exclude=/mnt --exclude=/proc --exclude=/sys --exclude=/dev "
        "--exclude=/tmp --exclude=/etc/hosts --exclude=/etc/hostname --exclude=/etc/resolv.conf "
        f"--exclude=/.dockerenv / {c.JAIL}/"
    )

    names = {line.split()[1] for line in changed.splitlines()}
    assert names == {"usr/bin/tmux", "usr/share/fresh", "usr/share/link-to-fresh"}


def test_refresh_and_rollback_keep_a_program_running(filled: Shell) -> None:
    before = filled.contents()
    filled.answer(
        f"(exec {c.JAIL}/usr/bin/python3 -c 'import time; time.sleep(1); import xmlrpc.client; "
        "time.sleep(600)') >/dev/null 2>&1 & sleep 0.2"
    )

    code, output = filled.populate(2)

    assert code == 0, output
    assert filled.answer(f"{c.JAIL}/usr/bin/tmux") == "new"
    assert filled.answer(f"test -e {c.JAIL}/usr/bin/less || echo gone") == "gone"
    assert filled.answer(f"cat {c.JAIL}/etc/site.conf") == "of our site"
    assert filled.answer(f"cat {c.JAIL}/home/ada/thesis") == "years of work"
    assert filled.answer("pgrep -fc '[t]ime.sleep'") == "1"

    code, output = filled.populate(1)

    assert code == 0, output
    assert filled.contents() == before
    assert filled.answer("pgrep -fc '[t]ime.sleep'; pkill -f '[t]ime.sleep'") == "1"


def test_users_cannot_list_the_generations_of_the_jail(filled: Shell) -> None:
    filled.populate(2)

    code, output = filled.run(f"ls {c.JAIL}/var/lib/slurmstack/generations", user="2000")

    assert code != 0
    assert "Permission denied" in output
    assert "generations" not in filled.answer(f"ls -A {c.JAIL}")


def test_next_run_completes_a_refresh_that_was_killed(
    filled: Shell,
) -> None:
    before = filled.contents()
    begin = time.monotonic()
    assert filled.populate(2)[0] == 0
    duration = time.monotonic() - begin
    after = filled.contents()
    moment = random.uniform(0, duration)

    for generation, expected in ((1, before), (2, after)):
        code, output = filled.run(
            f"JAIL_REFRESH={generation} timeout --signal=KILL {moment:.2f} {c.PROGRAMS}/populate"
        )
        assert code in (0, 137), output
        # Programs in the jail run even after an interrupted refresh.
        assert filled.inside("python3 -c 'import ssl; print(1)'") == "1"
        code, output = filled.populate(generation)
        assert code == 0, output
        assert filled.contents() == expected


# --- Full volumes --------------------------------------------------------------------------------


def test_refuses_a_jail_larger_than_its_volume(
    volumes: Volumes,
) -> None:
    shell = volumes.shell(volumes.make("100m"))

    code, output = shell.populate(0)

    assert code == c.JAIL_REFUSED, output
    assert "the jail's volume is full: generation 0 needs " in output
    assert " MiB are free; delete files or raise 'jail.size'" in output
    assert output.strip() == f"error: {shell.answer('cat /dev/termination-log')}"
    assert shell.answer(f"ls {c.JAIL}/usr 2>/dev/null || echo nothing") == "nothing"


def test_refresh_on_a_full_volume_leaves_the_jail_unchanged(volumes: Volumes) -> None:
    shell = volumes.shell(volumes.make("1200m"))
    assert shell.populate(1)[0] == 0
    shell.answer(f"install -d -o 2000 {c.JAIL}/home/ada")
    shell.answer(NEW_IMAGE)
    before = shell.contents()
    # Fill the volume, and disable the check of free space, so that the unpacking itself fails.
    shell.run(
        f"free=$(df --output=avail -BM {c.JAIL} | tr -dc 0-9); "
        f"dd if=/dev/zero of={c.JAIL}/home/data bs=1M count=$((free - 50)); "
        "sed -i 's/if found < needed:/if False:/' /usr/lib/slurmstack/populate"
    )

    code, output = shell.populate(2)

    assert code == c.JAIL_REFUSED, output
    assert output.startswith("error: the jail's volume is full: generation 2 needs")
    shell.answer(f"rm {c.JAIL}/home/data")
    assert shell.contents() == before
    code, output = shell.populate(2)
    assert code == 0, output
    assert shell.answer(f"{c.JAIL}/usr/bin/tmux") == "new"
    shell.run(
        f"free=$(df --output=avail -BM {c.JAIL} | tr -dc 0-9); "
        f"dd if=/dev/zero of={c.JAIL}/home/data bs=1M count=$((free - 30))"
    )
    code, output = shell.populate(1)
    assert code == 0, f"a rollback needs almost no free space: {output}"
    shell.answer(f"rm {c.JAIL}/home/data")
    assert shell.contents() == before
