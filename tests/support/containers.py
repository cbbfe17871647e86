"""Containers from the stack's images, on a separate network."""

import contextlib
import io
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from docker.errors import APIError
from docker.models.containers import Container

from images import build, tags
from local import debian, host
from tests.support import open_shells
from tests.support.waiting import eventually

Start = Callable[..., Container]
_running: dict[str, Container] = {}
"""Running containers that this process started, by id."""


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """After the `with` block, remove the containers that the block started, to save CPU time."""
    before = set(_running)
    try:
        yield
    finally:
        for id_ in set(_running) - before:
            _remove(id_)


def _remove(id_: str) -> None:
    open_shells.close(id_)
    if container := _running.pop(id_, None):
        container.remove(force=True, v=True)


@contextlib.contextmanager
def containers(prefix: str) -> Iterator[Start]:
    """Start idle containers from the stack's images, and remove them at the end.

    All containers are on one internal network, where only the names of the containers resolve.
    With `network_mode`, a container shares the network of another container instead.
    """
    client = host.engine(print)
    debian.ensure_base_image(client, print)
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    network = client.networks.create(name, internal=True)
    started: list[str] = []

    def start(image: str, ours: bool = True, **options: Any) -> Container:
        for needed in build.closure([image] if ours else []):
            build.build(client, needed, None, print)
        if "network_mode" not in options:
            options["network"] = name
        container: Container = client.containers.run(
            tags.reference(image, None) if ours else image,
            ["sleep", "infinity"],
            name=f"{name}-{len(started)}",
            detach=True,
            init=True,
            user="root",
            **options,
        )
        started.append(str(container.id))
        _running[started[-1]] = container
        return container

    try:
        yield start
    finally:
        for id_ in started:
            _remove(id_)
        network.remove()


@contextlib.contextmanager
def frozen(container: Container) -> Iterator[None]:
    """Freeze all processes of a container during the `with` block."""
    eventually(f"{container.name} is frozen", lambda: _freeze(container), 120)
    try:
        yield
    finally:
        container.unpause()


def _freeze(container: Container) -> bool:
    """Pause a container. Return False if runc gives up because a process waits in the kernel."""
    try:
        container.pause()
    except APIError as error:
        if "unable to freeze" not in str(error):
            raise
        return False
    return True


def archive(files: Mapping[str, str | bytes], mode: int = 0o644) -> bytes:
    """Return a tar archive of files with the given `mode`; by default, all users can read them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(raw), mode
            tar.addfile(member, io.BytesIO(raw))
    return buffer.getvalue()


def put(container: Container, files: Mapping[str, str | bytes], mode: int = 0o644) -> None:
    """Write files into a container."""
    container.put_archive("/", archive(files, mode))
