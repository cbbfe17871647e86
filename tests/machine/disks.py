"""The disks of the virtual machine.

Because the emulated machine is slow, the disks already contain what `make up` needs:
packages of Debian and of Python, binaries of Kubernetes, and the images.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker

from components.settings import read_stack
from images.build import references
from local import binaries, debian, host, images, node_image
from local.paths import CACHE, LOCK, ROOT, locked
from tests.support.commands import execute
from tests.support.waiting import eventually

PROJECT: Final = "/root/slurmstack"
"""Directory of this project on the machine."""
PAYLOAD: Final = "/mnt/payload"
"""Mount point of the disk with the files of a run: project and authorized keys."""
DOCKER: Final = "/var/lib/docker"
"""Mount point of the disk with Docker's images, and with an unpacked copy for Kubernetes nodes."""
_PACKAGES: Final = (
    *("dbus", "linux-image-cloud-amd64", "openssh-server", "systemd-sysv", "udev"),
    *("ca-certificates", "docker-cli", "docker.io", "iproute2", "iptables", "make"),
    *("debootstrap", "nfs-common", "openssh-client", "procps", "python3-venv", "rsync"),
)
_SIZE: Final = "40G"
"""Size of the system disk, which is mostly empty."""
_FILES: Final = {
    "etc/hostname": "slurmstack-test\n",
    "etc/fstab": f"/dev/vda / ext4 defaults 0 1\n/dev/vdb {PAYLOAD} ext4 ro 0 0\n"
    f"/dev/vdc {DOCKER} ext4 defaults 0 0\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/systemd/network/all.network": "[Match]\nName=en*\n\n[Network]\nDHCP=yes\n",
    "etc/ssh/sshd_config.d/payload.conf": f"AuthorizedKeysFile {PAYLOAD}/authorized_keys\n",
}
"""Files of the system disk. QEMU's user network has a DNS server at 10.0.2.3."""
_TIMEOUT: Final = 1800

Say = Callable[[str], None]


@dataclass(frozen=True)
class System:
    """A folder with a stock Debian."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"


def system(say: Say) -> System:
    """Return a Debian with Go and all packages. Build it only once: no machine changes it."""
    requirements = (ROOT / "requirements-dev.txt").read_bytes()
    known = repr((debian.SUITE, _PACKAGES, _SIZE, sorted(_FILES.items()), host.go_version()))
    digest = hashlib.sha256(known.encode() + requirements).hexdigest()[:12]
    found = System(CACHE / f"machine-{digest}")
    with locked(CACHE / "machine.lock", say):
        if not found.folder.is_dir():
            for old in CACHE.glob("machine-*"):
                shutil.rmtree(old)
            _make_system(found, say)
    return found


def _make_system(made: System, say: Say) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="machine-root-") as work:
        tree, unfinished = Path(work) / "root", System(Path(work) / "made")
        unfinished.folder.mkdir()
        say(f"installing Debian {debian.SUITE}")
        host.install(host.missing_packages(["debootstrap"]), say)
        mirror = debian.machine_mirrors().main
        _run(
            *("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}"),
            *(debian.SUITE, str(tree), *([mirror] if mirror else [])),
        )
        for name in ("vmlinuz", "initrd.img"):
            shutil.copy(tree / name, unfinished.folder / name)
        say("installing Python's packages and Go")
        _add_tools(tree)
        say("writing the system disk")
        _write_disk(tree, unfinished.disk, _SIZE)
        unfinished.folder.rename(made.folder)


def _add_tools(tree: Path) -> None:
    project = tree / PROJECT.lstrip("/")
    project.mkdir()
    for name in ("Makefile", "requirements-dev.txt"):
        shutil.copy(ROOT / name, project)
    _copy_network_settings(tree)
    _run("chroot", str(tree), "make", "-C", PROJECT, ".venv/ready")
    # Copy this machine's Go: the cached binaries are valid only for this version of Go.
    root = execute(["go", "env", "GOROOT"]).stdout.strip()
    shutil.copytree(root, tree / "usr/local/go", symlinks=True)
    (tree / "usr/local/bin/go").symlink_to("/usr/local/go/bin/go")
    for name, text in _FILES.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text)
    _run("chroot", str(tree), "systemctl", "enable", "systemd-networkd")


def _copy_network_settings(tree: Path) -> None:
    """Copy into the tree the settings and certificates that pip needs to download packages."""
    certificates = {os.environ.get(name, "") for name in ("PIP_CERT", "SSL_CERT_FILE")}
    for name in ("/etc/resolv.conf", "/etc/pip.conf", *sorted(certificates)):
        file, copy = Path(name), tree / name.lstrip("/")
        if name and file.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copy(file, copy)


@dataclass(frozen=True)
class Payload:
    """A folder with the two disks of a run."""

    folder: Path

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def docker(self) -> Path:
        return self.folder / "docker"


def payload(client: docker.DockerClient, made: Payload, public_key: str, say: Say) -> None:
    """Write the disks of a run."""
    made.folder.mkdir(parents=True, exist_ok=True)
    # Build Kubernetes' binaries before they are copied: the emulated machine would need hours.
    ours, node, others = _references(client, say)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="machine-payload-") as work:
        folder = Path(work)
        (folder / "authorized_keys").write_text(f"{public_key}\n")
        say("writing the disk with the project and Kubernetes' binaries")
        _save_project(folder / "project.tar")
        _write_disk(folder, made.project, "4G")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="machine-docker-") as work:
        folder = Path(work)
        say("loading the images into a second Docker engine")
        with _second_engine(folder) as second:
            with images.saved(client, [*ours, node, *others], folder, say) as archive:
                execute(["docker", "--host", _socket(folder), "load", "--input", archive])
            images.unpacked(second, node, ours, say)
        say("writing the disk with the images")
        _write_disk(folder / "docker", made.docker, "24G")


def _socket(folder: Path) -> str:
    return f"unix://{folder}/docker.sock"


@contextmanager
def _second_engine(folder: Path) -> Iterator[docker.DockerClient]:
    """Run another Docker engine, whose images and volumes are in the folder's `docker`."""
    command = [
        *("dockerd", "--storage-driver", "overlay2", "--bridge", "none", "--iptables=false"),
        *("--host", _socket(folder), "--pidfile", f"{folder}/pid"),
        *("--data-root", f"{folder}/docker", "--exec-root", f"{folder}/exec"),
    ]
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        chosen = {"DOCKER_HOST": _socket(folder)}
        client = eventually("the second Docker engine answers", lambda: host.connect(chosen))
        assert client
        yield client
    finally:
        process.terminate()
        process.wait(60)


def _save_project(archive: Path) -> None:
    """Archive all files that git does not ignore, and the cached binaries of Kubernetes."""
    listed = execute(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).stdout
    present = [name for name in listed.splitlines() if (ROOT / name).is_file()]
    built = [str(path.relative_to(ROOT)) for path in CACHE.glob("go-*")]
    command = ["tar", "--create", "--file", str(archive), "--files-from=-"]
    execute(command, stdin="\n".join((*present, *built)), timeout=_TIMEOUT)


def _references(client: docker.DockerClient, say: Say) -> tuple[list[str], str, list[str]]:
    """Build missing images. Return the images that nodes load, the node image, and other images."""
    execute([ROOT / ".venv/bin/python", "-m", "images.build", "--build-only"], timeout=_TIMEOUT)
    with locked(LOCK, say):
        directory = binaries.ensure(say)
        node = node_image.ensure(client, directory, say)
    others = [node_image.system_image(directory), debian.BASE_IMAGE]
    return references(read_stack("dev", ROOT)), node, others


def _write_disk(tree: Path, disk: Path, size: str) -> None:
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-d", str(tree), str(disk), size)


def _run(*command: str) -> None:
    execute(command, timeout=_TIMEOUT)
