"""If a site allows users to be root in the jail, they can change the jail's mount points."""

from collections.abc import Iterator

import pytest

from tests.cluster.escape.victim import in_shell
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

NODE = "cpu-1"
RUN = f"srun --immediate=20 --nodelist={NODE}"
"""Command that fails if the job does not start within 20 s, for example on a broken node."""
POINTS = ("/var/tmp", "/var/spool/slurmd")


@pytest.fixture(params=POINTS)
def replaced(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Replace a mount point with a link to the node's own files."""
    point = f"/mnt/jail{request.param}"
    in_shell(cluster, NODE, "slurmd", f"mv {point} {point}.away && ln -s /etc {point}")
    yield str(request.param)
    in_shell(cluster, NODE, "slurmd", f"rm {point} && mv {point}.away {point}")
    again = f"{RUN} true"
    eventually(
        "the node starts steps again", lambda: cluster.ssh(again, check=False).returncode == 0
    )


def test_no_step_starts_if_a_mount_point_is_a_link(cluster: Cluster, replaced: str) -> None:
    listing = in_shell(cluster, NODE, "slurmd", "ls -la --time-style=full-iso /etc /mnt/jail/etc")

    for job in (
        cluster.ssh(f"{RUN} touch {replaced}/through", check=False).stderr,
        cluster.as_user(0, 0, f"{RUN} touch {replaced}/through 2>&1 || true"),
    ):
        assert "launch failed" in job
    reason = f"chroot: mount point /mnt/jail{replaced} leads through a symbolic link"
    assert cluster.kubectl("logs", NODE, "--container=slurmd").count(reason) >= 2

    after = in_shell(cluster, NODE, "slurmd", "ls -la --time-style=full-iso /etc /mnt/jail/etc")
    assert after == listing


def test_job_of_root_runs_in_the_jail(cluster: Cluster) -> None:
    look = "test -e /usr/sbin/slurmd || echo jail; ps -e -o comm= | sort -u | tr '\\n' ' '; ls /dev"
    output = cluster.as_user(0, 0, f'{RUN} sh -c "{look}"')

    assert output.startswith("jail\n")
    assert "slurmd " not in output
    assert not {"sda", "vda", "mem", "kmsg"} & set(output.split())
