"""Mounts of a pod in a jail in which users have created links, in the real worker image."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.container.jail.volumes import Shell, Volumes

SHOWN = f"{c.JAIL_VOLUMES}/data"
MOUNTS = f"cd / && PYTHONPATH={c.PROGRAMS} python3 -BS -m agents.mounts {c.JAIL}"
PREPARE = f"""
set -e
mkdir -p {SHOWN} {c.JAIL}/etc {c.JAIL}/real
mount -t tmpfs data {SHOWN}
echo shown >{SHOWN}/file
ln -s /etc {c.JAIL}/out
ln -s real {c.JAIL}/inside
"""


@pytest.fixture
def shell(volumes: Volumes) -> Iterator[Shell]:
    """A container with a volume to mount, and a jail in which users have created links."""
    rights = {"cap_add": ["SYS_ADMIN", "DAC_OVERRIDE", "CHOWN"]}
    options = {"security_opt": ["seccomp=unconfined", "apparmor=unconfined"], **rights}
    shell = volumes.shell(volumes.make(), "worker", **options)
    shell.answer(PREPARE)
    yield shell
    shell.container.kill()


def mounted(shell: Shell) -> list[str]:
    """Return the paths at which the volume is mounted, except SHOWN."""
    places = shell.answer("grep ' - tmpfs data ' /proc/self/mountinfo | cut -d ' ' -f 5")
    return [place for place in places.split() if place != SHOWN]


@pytest.mark.parametrize("target", ["/data", "/data/deep/inside", "/real"])
def test_missing_mount_point_of_a_volume_is_created(shell: Shell, target: str) -> None:
    shell.answer(f"{MOUNTS} {SHOWN}={target}")

    assert shell.answer(f"cat {c.JAIL}{target}/file") == "shown"
    assert mounted(shell) == [f"{c.JAIL}{target}"]


@pytest.mark.parametrize("target", ["/out", "/out/made", "/inside", "/inside/made"])
def test_symbolic_link_in_a_mount_path_is_refused(shell: Shell, target: str) -> None:
    code, output = shell.run(f"{MOUNTS} {SHOWN}={target}")

    assert code == 1
    assert output.startswith(f"cannot mount {SHOWN} at {target} in the jail: ")
    assert len(output.splitlines()) == 1
    assert mounted(shell) == []
    assert shell.answer("test -e /etc/made || echo none") == "none"


def test_read_only_volume_stays_read_only(shell: Shell) -> None:
    shell.answer(f"mount -o remount,ro,bind {SHOWN}")

    shell.answer(f"{MOUNTS} {SHOWN}=/data")

    assert "Read-only" in shell.run(f"touch {c.JAIL}/data/new")[1]


def test_pod_starts_even_if_an_optional_file_cannot_be_created(shell: Shell) -> None:
    laid = f"--lay {SHOWN}/file=/out/laid --lay {SHOWN}/file=/etc/laid"

    output = shell.answer(f"{MOUNTS} {laid} {SHOWN}=/data")

    assert output.startswith("starting without /out/laid in the jail, because ")
    assert shell.answer(f"cat {c.JAIL}/etc/laid") == "shown"
    assert shell.answer("test -e /etc/laid || echo none") == "none"
