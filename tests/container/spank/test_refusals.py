"""A job does not run if it cannot be isolated as configured."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.slurmctld import OPEN
from tests.support.spank import Node


@contextmanager
def moved(node: Node, path: str, instead: str) -> Iterator[None]:
    """Replace a path in the jail during the `with` block."""
    node.root(f"mv {path} {path}.away; {instead}")
    try:
        yield
    finally:
        node.root(f"rm -rf {path}; mv {path}.away {path}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("nonsense\n", "node.conf: unknown option nonsense"),
        ("overlay=maybe\n", "node.conf: overlay=maybe: expected yes or no"),
        ("", "node.conf: no_new_privs= is missing"),
        ("no_new_privs=yes\noverlay=no\n", "node.conf: private_dev= is missing"),
        (f"{OPEN}through=/home\n", "through=/home requires overlay=yes"),
        (f"{OPEN}bind=/missing\n", "cannot bind-mount /missing of the node"),
    ],
)
def test_refused_job_reports_the_reason(node: Node, options: str, reason: str) -> None:
    node.configure(options)

    assert reason in node.refusal("touch /srv/ran")
    assert node.root("find / -xdev -name ran; find /mnt/jail/srv -name ran") == ""


def test_refused_job_opens_no_file_on_the_node(node: Node) -> None:
    node.configure(f"{OPEN}bind_ro=/missing\n")

    node.refusal("true", "--output=/tmp/opened-%t")

    assert node.root("find / -xdev -name 'opened-*'") == ""


def test_refuses_a_configuration_that_others_can_write(node: Node) -> None:
    node.root("chmod 0666 /etc/slurmstack/isolation/node.conf")

    assert node.refusal("touch /srv/ran")
    assert node.root("find /mnt/jail/srv -name ran") == ""


@pytest.mark.parametrize("path", ["/tmp", "/proc", "/dev", "/usr/lib/slurmstack"])
def test_link_in_the_jail_cannot_redirect_a_mount(node: Node, path: str) -> None:
    with moved(node, f"/mnt/jail{path}", f"ln -s /etc /mnt/jail{path}"):
        reason = node.refusal("touch /srv/ran")

    assert f"/mnt/jail{path} leads through a symbolic link" in reason
    assert node.root("find /mnt/jail/srv -name ran") == ""


@pytest.fixture
def swapped(node: Node) -> Iterator[str]:
    """A mount point that alternates between a directory and a link to /etc."""
    node.root("mkdir /srv/x; cd /mnt/jail/srv; mkdir x; ln -s /etc y; chmod 1777 /srv/x x")
    loop = "cd /mnt/jail/srv; while mv --exchange --no-target-directory x y; do :; done"
    pid = node.root(f"bash -c '{loop}' >/dev/null 2>&1 & echo $!")
    yield "/srv/x"
    node.root(f"kill {pid}; sleep 0.1; rm -r /srv/x /mnt/jail/srv/x /mnt/jail/srv/y")


def test_swapping_a_mount_point_cannot_redirect_a_mount(node: Node, swapped: str) -> None:
    node.configure(f"{OPEN}bind={swapped}\n")
    # Limit the time, because a job with a replaced /etc would hang.
    print_mounts = (
        "timeout 30 srun --quiet bash -c 'cut --delimiter=\" \" --fields=2 /proc/self/mounts'"
    )

    # Depending on the timing, some steps are refused and some run.
    outputs = [node.user(f"{print_mounts} 2>&1 || true") for _ in range(12)]

    assert not any("/etc" in mounts.splitlines() for mounts in outputs)
    # A mount belongs to a directory, not to a name. While the loop swaps the names x and y, the
    # directory with the mount may have either name.
    places = {swapped, swapped.replace("x", "y")}
    assert all("srun: error" in mounts or places & set(mounts.splitlines()) for mounts in outputs)


def test_next_job_runs_after_a_refusal(node: Node) -> None:
    with moved(node, "/mnt/jail/tmp", "true"):
        assert "/mnt/jail/tmp is missing" in node.refusal("true")

    assert node.job("echo here") == "here"
