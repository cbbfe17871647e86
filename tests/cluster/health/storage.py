"""File systems of the tests, mounted over file systems of a Kubernetes node."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from components import conventions as c
from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually

# Call move_mount(2), because mount(8) cannot move a mount into a mount namespace with another root.
# The numbers of the system calls are the same on all architectures.
_ATTACH = """
import ctypes, os, sys
OPEN_TREE, MOVE_MOUNT, HERE, CLONE, FROM_TREE, NEW_MOUNTS = 428, 429, -100, 1, 4, 0x20000
process, source, target = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def checked(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
    return answer

tree = checked(libc.syscall(OPEN_TREE, HERE, source.encode(), CLONE))
checked(libc.setns(os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY), NEW_MOUNTS))
os.makedirs(target, exist_ok=True)
checked(libc.syscall(MOVE_MOUNT, tree, b"", HERE, target.encode(), FROM_TREE))
"""
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@contextlib.contextmanager
def disk(mebibytes: int, inodes: int = 4096) -> Iterator[Path]:
    """Yield the folder of an empty disk of this size with this many inodes."""
    with _formatted(mebibytes, inodes) as (image, folder):
        execute(["mount", "-o", "loop", image, folder])
        try:
            yield folder
        finally:
            execute(["umount", folder])


@contextlib.contextmanager
def storage_server(clock: str = "+0") -> Iterator[tuple[Path, int]]:
    """Yield the folder of an empty file system, and the process id of its server.

    `clock` is the server's clock offset in the syntax of faketime(1).
    """
    with _formatted(64, 4096) as (image, folder):
        server = subprocess.Popen(
            ["fuse2fs", "-f", "-o", "fakeroot,allow_other", image, folder],
            env={**os.environ, "LD_PRELOAD": FAKETIME, "FAKETIME": clock},
        )
        try:
            eventually("the file system is mounted", folder.is_mount)
            yield folder, server.pid
        finally:
            server.send_signal(signal.SIGCONT)
            execute(["umount", "--lazy", folder])
            server.wait(30)


@contextlib.contextmanager
def _formatted(mebibytes: int, inodes: int) -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory() as scratch:
        image, folder = Path(scratch) / "image", Path(scratch) / "mounted"
        folder.mkdir()
        execute(["truncate", f"--size={mebibytes}M", image])
        options = ["-q", "-O", "^has_journal", "-m", "0", "-N", str(inodes)]
        execute(["mkfs.ext4", *options, image])
        yield image, folder


@contextlib.contextmanager
def attached(cluster: Cluster, machine: str, source: Path, target: str) -> Iterator[None]:
    """Mount `source` at `target` of a Kubernetes node, for pods that start afterwards."""
    container = cluster.computer(machine)
    process = str(container.attrs["State"]["Pid"])
    execute([sys.executable, "-c", _ATTACH, process, source, target])
    try:
        yield
    finally:
        # Unmount lazily, because running pods may use the mount until they end.
        container.exec_run(["umount", "--lazy", target])


def volume_path(cluster: Cluster, claim: str) -> str:
    """Return the path of a claim's volume on the Kubernetes nodes."""
    volume = cluster.kubectl("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
    (chosen,) = (pv for pv in cluster.objects("pv") if pv["metadata"]["name"] == volume)
    spec = chosen["spec"]
    return str((spec.get("local") or spec["hostPath"])["path"])


@contextlib.contextmanager
def jail_as_the_exporter_sees_it(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Mount `folder` in place of the jail, but only in the exporter's pod."""
    with (
        attached(cluster, "node-0", folder, volume_path(cluster, c.JAIL_CLAIM)),
        cluster.cordoned("node-1"),
    ):
        _restart(cluster, c.EXPORTER)
    try:
        yield
    finally:
        _restart(cluster, c.EXPORTER)


def _restart(cluster: Cluster, component: str) -> None:
    names = [pod["metadata"]["name"] for pod in cluster.pods(component)]
    cluster.kubectl("delete", "pod", *names, timeout=120)
    cluster.wait_for_deployment(component)
