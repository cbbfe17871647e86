"""The image of all node containers."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import docker

from components.conventions import DOMAIN, PROJECT
from local import host
from local.binaries import KUBERNETES
from local.errors import LocalError
from local.paths import CACHE, ROOT

SOURCES = ROOT / "local" / "node"
SYSTEM_FILES = ("system.Dockerfile", "pause.c")
NODE_FILES = ("Dockerfile", "containerd.toml", "entrypoint.sh", "unpack.sh")
SYSTEM_BINARIES = ("coredns", "local-path-provisioner")
CONTEXT = "image-"
LABEL = f"{DOMAIN}/image"
PROXIES = (
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""Build arguments that Docker predefines, so that they do not become part of the image."""


def system_image(binaries: Path) -> str:
    """Return the reference of the image for the cluster's own pods."""
    digest = content_digest([binaries.name], (SOURCES / name for name in SYSTEM_FILES))
    return f"{PROJECT}/system:{digest}"


def node_image(binaries: Path) -> str:
    parts = [binaries.name, system_image(binaries)]
    return f"{PROJECT}/node:{content_digest(parts, (SOURCES / name for name in NODE_FILES))}"


def content_digest(parts: Iterable[str], files: Iterable[Path]) -> str:
    """Return a digest of all parts and files, as twelve hexadecimal digits."""
    digest = hashlib.sha256("\n".join(parts).encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def ensure(client: docker.DockerClient, binaries: Path, say: Callable[[str], None]) -> str:
    """Return the node image's reference; build it and the system image if needed.

    Docker must have the base image. The caller must hold a lock, so that only one run builds at a
    time. Raises LocalError.
    """
    node = node_image(binaries)
    if host.has_image(client, node):
        return node
    system = system_image(binaries)
    CACHE.mkdir(parents=True, exist_ok=True)
    for leftover in CACHE.glob(f"{CONTEXT}*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=CONTEXT) as directory:
        if not host.has_image(client, system):
            context = Path(directory) / "system"
            _fill(context, SYSTEM_FILES, [binaries / name for name in SYSTEM_BINARIES])
            _build(client, context, "system.Dockerfile", system, say)
        context = Path(directory) / "node"
        _fill(context, NODE_FILES, [binaries / KUBERNETES])
        _save(client, system, context / "system.tar")
        known_as = f"docker.io/{system}"  # the image's name in containerd
        (context / "system.name").write_text(f"{known_as}\n")
        containerd = context / "containerd.toml"
        containerd.write_text(containerd.read_text().replace("@SYSTEM_IMAGE@", known_as))
        _build(client, context, "Dockerfile", node, say)
    return node


def _fill(context: Path, sources: Iterable[str], binaries: Iterable[Path]) -> None:
    context.mkdir()
    for name in sources:
        shutil.copy(SOURCES / name, context / name)
    for binary in binaries:
        os.link(binary, context / binary.name)


def _save(client: docker.DockerClient, reference: str, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(client.images.get(reference).save(named=reference))


def _build(
    client: docker.DockerClient,
    context: Path,
    dockerfile: str,
    reference: str,
    say: Callable[[str], None],
) -> None:
    say(f"building {reference}")
    messages = client.api.build(
        path=str(context),
        dockerfile=dockerfile,
        tag=reference,
        rm=True,
        forcerm=True,
        # On hosts that are containers themselves, Docker's bridge cannot reach other hosts.
        network_mode="host",
        buildargs={name: os.environ[name] for name in PROXIES if os.environ.get(name)},
        labels={LABEL: reference.rpartition("/")[2].partition(":")[0]},
        decode=True,
    )
    _follow(reference, messages)


def _follow(reference: str, messages: Iterable[dict[str, Any]]) -> None:
    lines: list[str] = []
    for message in messages:
        lines += str(message.get("stream", "")).splitlines()
        if "error" in message:
            errors = [line for line in lines if line.startswith("E:")]
            hint = f" ({errors[-1]})" if errors else ""
            raise LocalError(
                f"cannot build the image {reference}: {message['error'].strip()}{hint}; fix the"
                " cause, then run the command again"
            )
