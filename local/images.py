"""Provide images to nodes: unpack them once for new nodes, and load them into running nodes."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import docker
from docker.errors import APIError, ContainerError
from docker.models.containers import Container

from components.conventions import PROJECT
from local import host, node_image
from local.containers import IMAGES, IN_MEMORY, LABEL_UNPACKED, Engine, start
from local.errors import LocalError
from local.paths import CACHE
from local.state import State

CONTAINERD = "/var/lib/containerd"

Say = Callable[[str], None]


def are_here(client: docker.DockerClient, references: Sequence[str]) -> bool:
    return bool(references) and all(host.has_image(client, one) for one in references)


def load(client: docker.DockerClient, stack: str, references: Iterable[str], say: Say) -> None:
    """Load images from Docker into each running node that lacks any of them. Raises LocalError."""
    nodes = Engine(client, stack).running().values()
    if not nodes:
        raise LocalError(
            f"stack '{stack}' has no running node; start the cluster with"
            f" `python -m local up --stack {stack}`"
        )
    wanted = list(dict.fromkeys(references))
    loaded = {node: _loaded(node) for node in nodes}
    needed = [one for one in wanted if any(canonical(one) not in has for has in loaded.values())]
    if not needed:
        return
    behind = [node for node, has in loaded.items() if not has.issuperset(map(canonical, wanted))]
    with saved(client, needed, State(stack).images, say) as archive:
        say(f"loading {len(needed)} images into {len(behind)} nodes")
        with ThreadPoolExecutor(len(behind)) as pool:
            for _ in pool.map(lambda node: _import(node, archive.name), behind):
                pass


def canonical(reference: str) -> str:
    """Return the image's name in containerd, with its registry and tag."""
    first, _, rest = reference.partition("/")
    if not rest:
        reference = f"docker.io/library/{reference}"
    elif not ("." in first or ":" in first or first == "localhost"):
        reference = f"docker.io/{reference}"
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def _loaded(node: Container) -> set[str]:
    return set(_ctr(node, "images", "list", "--quiet").split())


def _import(node: Container, archive: str) -> None:
    # Without --local, ctr sends all data through containerd's socket.
    _ctr(node, "images", "import", "--local", f"{IMAGES}/{archive}")


def _ctr(node: Container, *arguments: str) -> str:
    """Run containerd's client in a node and return its output. Raises LocalError."""
    code, content = node.exec_run(["ctr", "--namespace", "k8s.io", *arguments])
    output = content.decode(errors="replace") if isinstance(content, bytes) else ""
    if code != 0:
        lines = output.strip().splitlines()
        raise LocalError(
            f"container {node.name}: `ctr {' '.join(arguments)}` failed: {''.join(lines[-1:])};"
            " read /var/log/slurmstack/containerd.log in this container"
        )
    return output


# --- Unpacked images that all nodes share --------------------------------------------------------


def unpacked(client: docker.DockerClient, node: str, references: Sequence[str], say: Say) -> str:
    """Return the name of a Docker volume with the unpacked images; create the volume if needed.

    New nodes start with the volume's contents, so that not every node unpacks gigabytes. `node` is
    the reference of the node image. Docker must have all images. Raises LocalError.
    """
    name = f"{PROJECT}-unpacked-{_digest(client, [node, *references])}"
    client.volumes.create(name, labels={LABEL_UNPACKED: name})
    if not _is_complete(client, node, name):
        with saved(client, references, CACHE, say) as archive:
            say(f"unpacking {len(references)} images once for all nodes")
            _unpack(client, node, name, archive)
        _remove_others(client, name)
    return name


def _is_complete(client: docker.DockerClient, node: str, volume: str) -> bool:
    look = ["test", "-e", f"{CONTAINERD}/complete"]
    where = {volume: {"bind": CONTAINERD, "mode": "ro"}}
    try:
        client.containers.run(
            node, entrypoint=look, volumes=where, network_mode="none", remove=True
        )
    except ContainerError:
        return False
    return True


def _unpack(client: docker.DockerClient, node: str, volume: str, archive: Path) -> None:
    def configuration(rights: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "Image": node,
            "Entrypoint": ["/usr/local/bin/unpack", f"{IMAGES}/{archive.name}"],
            "HostConfig": {
                "NetworkMode": "none",
                "Binds": [f"{volume}:{CONTAINERD}", f"{archive}:{IMAGES}/{archive.name}:ro"],
                "Tmpfs": IN_MEMORY,
                **rights,
            },
        }

    container = client.containers.get(start(client, configuration))
    try:
        if container.wait()["StatusCode"] != 0:
            said = container.logs(tail=1).decode(errors="replace").strip() or "no output"
            raise LocalError(
                f"cannot unpack the images for the nodes: {said}; check that Docker has enough free"
                " disk space (`docker system df`), then run the command again"
            )
    finally:
        container.remove(force=True)


def _remove_others(client: docker.DockerClient, name: str) -> None:
    """Remove older volumes of unpacked images that no node uses."""
    for volume in client.volumes.list(filters={"label": LABEL_UNPACKED}):
        if volume.name != name:
            try:
                volume.remove()
            except APIError as error:
                if error.status_code != 409:
                    raise


# --- Archives of images --------------------------------------------------------------------------


def _digest(client: docker.DockerClient, references: Iterable[str]) -> str:
    """Return a digest of the references and the ids of their images. Raises ImageNotFound."""
    parts = [f"{name} {client.images.get(name).id}" for name in references]
    return node_image.content_digest(parts, ())


@contextmanager
def saved(
    client: docker.DockerClient, references: Sequence[str], directory: Path, say: Say
) -> Iterator[Path]:
    """Yield the path of an archive with all images, and delete the archive afterwards.

    The archive contains each shared layer only once. Raises LocalError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob("images-*.tar"):
        if not Path(f"/proc/{leftover.stem.removeprefix('images-')}").exists():
            leftover.unlink(missing_ok=True)
    archive = directory / f"images-{os.getpid()}.tar"
    say(f"saving {len(references)} images")
    try:
        with archive.open("wb") as file:
            _save(client, references, file)
        yield archive
    finally:
        archive.unlink(missing_ok=True)


def _save(client: docker.DockerClient, references: Sequence[str], file: BinaryIO) -> None:
    url = f"{client.api.base_url}/v{client.api.api_version}/images/get"
    with client.api.get(url, params={"names": list(references)}, stream=True) as response:
        if response.status_code != 200:
            message = response.json().get("message", response.reason)
            raise LocalError(
                f"Docker cannot save the images {', '.join(references)}: {message}; check with"
                " `docker images` that all of them exist"
            )
        for chunk in response.iter_content(1 << 20):
            file.write(chunk)
