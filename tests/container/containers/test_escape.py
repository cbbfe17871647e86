"""Attempts of root in a container to act outside the container.

`tests/cluster/escape` makes more attempts from containers of a user.
"""

import pytest

from components import conventions as c
from tests.support.containers import put
from tests.support.imagesite import Site, run

OTHER = "/home/student/own"
POINT = "/tmp/point"
REFUSED = (
    "Operation not permitted",
    "Permission denied",
    "permission denied.",
    "Read-only file system",
    "must be root to change the host name",
)
ATTEMPTS = {
    "read another user's file": f"cat {OTHER}/file",
    "write to another user's directory": f"touch {OTHER}/new",
    "read a file as another user": f"setpriv --reuid=1500 --clear-groups cat {OTHER}/file",
    "read the password hashes": "cat /outer/etc/shadow",
    "change a file of the shared root": "touch /outer/etc/new",
    "change a program of the shared root": "chmod 777 /outer/usr/bin/bash",
    "make a device file": "mknod /tmp/disk b 8 0",
    "mount a disk": f"mount --types ext4 /dev/loop0 {POINT}",
    "mount the processes": f"mount --types proc none {POINT}",
    "mount the control groups": f"mount --types cgroup2 none {POINT}",
    "change a setting of the kernel": "echo x >/proc/sys/kernel/core_pattern",
    "end the job's first process": "kill -0 1",
    "make a control group": "mkdir /sys/fs/cgroup/new",
    "change the host name": "hostname other",
    "change the time": "date --set=2020-01-01",
    "enter the node's mounts": "nsenter --target=1 --mount true",
    "look into the node's root": "ls /proc/1/root/",
    "leave the root directory": "chroot /proc/1/root true",
}
SCRIPT = "".join(
    f'said=$({{ {command}; }} 2>&1 >/dev/null) && said="it worked"\n'
    f"echo \"{name}: ${{said%%$'\\n'*}}\"\n"
    for name, command in ATTEMPTS.items()
)


@pytest.fixture
def other(site: Site) -> None:
    """Create a file of another user."""
    site.node.root(
        f"install -d -o student -m 700 {c.JAIL}{OTHER}; "
        f"install -o student -m 600 /dev/null {c.JAIL}{OTHER}/file"
    )


def test_root_in_a_container_has_no_rights_outside_the_container(
    site: Site, image: str, other: None
) -> None:
    script = f"PATH=$PATH:/usr/sbin; mkdir {POINT}\n{SCRIPT}"
    put(site.node.worker.container, {f"{c.JAIL}/home/researcher/attempts": script})
    mounts = "/usr:/usr,/usr:/outer/usr,/etc:/outer/etc,/home:/home"

    output = run(
        site,
        f"--container-image={image} --container-remap-root --container-mounts={mounts}",
        "bash /root/attempts 2>&1",
    )

    found = dict(line.partition(": ")[::2] for line in output.splitlines())
    assert found.keys() == ATTEMPTS.keys()
    allowed = {name: said for name, said in found.items() if not said.endswith(REFUSED)}
    assert not allowed
