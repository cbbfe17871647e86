"""Provide the base image of all images, debian:trixie-slim, even if no registry is reachable."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from local import host
from local.errors import LocalError
from local.paths import CACHE, locked

SUITE = "trixie"
REPOSITORY = "debian"
TAG = f"{SUITE}-slim"
BASE_IMAGE = f"{REPOSITORY}:{TAG}"
WORK = "debian-root-"
PULL_SILENCE = 20
"""Seconds without data after which a registry is treated as unreachable."""


@dataclass(frozen=True)
class Mirrors:
    """Debian mirrors that a host uses. None means that its apt sources list no such mirror."""

    main: str | None
    security: str | None


def ensure_base_image(client: docker.DockerClient, progress: Callable[[str], None]) -> None:
    """Provide `debian:trixie-slim`: pull it, or else bootstrap it from a Debian mirror.

    `progress` gets one line for each step. Raises LocalError.
    """
    if host.has_image(client, BASE_IMAGE):
        return
    with locked(CACHE / "debian.lock", progress):
        if not (host.has_image(client, BASE_IMAGE) or _pull(progress)):
            _bootstrap(client, progress)


def _pull(progress: Callable[[str], None]) -> bool:
    progress(f"pulling {BASE_IMAGE}")
    try:
        impatient = docker.from_env(timeout=PULL_SILENCE)
        for message in impatient.api.pull(REPOSITORY, TAG, stream=True, decode=True):
            if "error" in message:
                return False
        impatient.images.get(BASE_IMAGE)
    except (DockerException, RequestException):
        return False
    return True


def _bootstrap(client: docker.DockerClient, progress: Callable[[str], None]) -> None:
    progress(f"cannot pull {BASE_IMAGE}; building it with debootstrap")
    host.install(host.missing_packages(["debootstrap"]), progress)
    mirrors = machine_mirrors()
    for leftover in CACHE.glob(f"{WORK}*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=WORK) as directory:
        root = Path(directory) / "root"
        mirror = [mirrors.main] if mirrors.main else []
        _run("debootstrap", "--variant=minbase", SUITE, str(root), *mirror)
        _slim(root, mirrors)
        archive = Path(directory) / "root.tar"
        _run(
            "tar",
            "--create",
            "--numeric-owner",
            "--file",
            str(archive),
            "-C",
            str(root),
            ".",
        )
        progress(f"importing {BASE_IMAGE}")
        try:
            client.api.import_image_from_file(str(archive), REPOSITORY, TAG, ['CMD ["bash"]'])
        except APIError as error:
            raise LocalError(
                f"Docker cannot import {BASE_IMAGE}: {error.explanation}; read the log of dockerd"
            ) from error


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit code {result.returncode}"
        raise LocalError(
            f"{command[0]} failed while building {BASE_IMAGE}: {reason}; fix the cause, then run"
            " the command again"
        )


def _slim(root: Path, mirrors: Mirrors) -> None:
    """Remove files that containers never need, and set the Debian mirrors for later builds."""
    for name in (
        "var/cache/apt/archives",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/man",
    ):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(
        "path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\n"
        "path-exclude /usr/share/locale/*\npath-include /usr/share/locale/locale.alias\n"
    )
    (root / "etc/apt/apt.conf.d/slim").write_text(
        'APT::Keep-Downloaded-Packages "false";\nAcquire::Languages "none";\n'
    )
    sources = root / "etc/apt/sources.list"
    if mirrors.main:
        sources.write_text(container_sources(mirrors))
    # debootstrap copies these values from the host; they must not be part of the image.
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").write_text("debian\n")
    (root / "etc/machine-id").write_text("")


# --- The host's own sources ----------------------------------------------------------------------


def machine_mirrors(directory: Path = Path("/etc/apt")) -> Mirrors:
    """Return the Debian mirrors that the host's apt uses."""
    parts = directory / "sources.list.d"
    files = [directory / "sources.list", *sorted(parts.glob("*.list"))]
    uris = [uri for file in files if file.is_file() for uri in _one_line_uris(file.read_text())]
    for file in sorted(parts.glob("*.sources")):
        uris += _deb822_uris(file.read_text())
    return find_mirrors(uris)


def find_mirrors(uris: Iterable[str]) -> Mirrors:
    """Return the archive and the security archive among the URIs of apt sources."""
    archives = [uri.rstrip("/") for uri in uris]
    main = [uri for uri in archives if re.search(r"/debian$", uri)]
    security = [uri for uri in archives if re.search(r"/debian-security$", uri)]
    return Mirrors(next(iter(main), None), next(iter(security), None))


def _one_line_uris(text: str) -> list[str]:
    pattern = re.compile(r"^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)", re.MULTILINE)
    return pattern.findall(text)


def _deb822_uris(text: str) -> list[str]:
    fields = re.compile(r"^URIs:[ \t]*(.+)$", re.MULTILINE | re.IGNORECASE)
    return [uri for line in fields.findall(text) for uri in line.split()]


def container_sources(mirrors: Mirrors) -> str:
    """Return the `sources.list` of an image.

    The file uses plain HTTP, because a base image has no certificates to verify HTTPS. HTTP is
    safe here: apt verifies the archive's signatures itself.
    """
    lines = []
    if mirrors.main:
        main = re.sub(r"^https:", "http:", mirrors.main)
        lines += [f"deb {main} {suite} main" for suite in (SUITE, f"{SUITE}-updates")]
    if mirrors.security:
        security = re.sub(r"^https:", "http:", mirrors.security)
        lines.append(f"deb {security} {SUITE}-security main")
    return "".join(f"{line}\n" for line in lines)
