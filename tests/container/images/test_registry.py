"""Pushes of images to a real registry on loopback, and the file that records their digests."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import httpx
import pytest
import yaml
from rich.console import Console

from images import build, digests
from images.build import BuildError, Report
from local import host
from local.paths import ROOT
from tests.support.containers import archive
from tests.support.ports import free_port
from tests.support.waiting import eventually

Put = Callable[[str, str], str]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address (host:port) of a running docker-registry from Debian."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    configuration = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": address},
    }
    file = folder / "config.yml"
    file.write_text(yaml.safe_dump(configuration))
    with subprocess.Popen([ROOT / ".local/bin/docker-registry", "serve", file]) as process:
        try:
            eventually("the registry answers", lambda: answers(address))
            yield address
        finally:
            process.terminate()


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/v2/", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def client() -> docker.DockerClient:
    return host.engine(print)


@pytest.fixture
def report() -> Report:
    return Report(Console(stderr=True))


@pytest.fixture
def put(client: docker.DockerClient) -> Iterator[Put]:
    """A function that creates an image with one file, and returns its id."""
    made = set()

    def image(reference: str, text: str) -> str:
        repository, _, tag = reference.rpartition(":")
        client.api.import_image_from_data(archive({"file": text}), repository, tag)
        made.add(reference)
        return str(client.images.get(reference).id)

    yield image
    for reference in made:
        client.images.remove(reference)


@pytest.fixture
def reference(registry: str) -> str:
    """Reference of an image that is not yet in the registry."""
    return f"{registry}/slurmstack/test-{uuid.uuid4().hex[:8]}:tag"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without a file of digests."""
    (tmp_path / "images").mkdir()
    return tmp_path


def test_pushed_image_can_be_pulled_by_its_recorded_digest(
    client: docker.DockerClient, report: Report, put: Put, reference: str, root: Path
) -> None:
    id_ = put(reference, "ours")

    found = build.share(client, [reference], report)

    assert "commit this file" in build.pin(found, keep=False, root=root)
    assert digests.known(root) == found
    pulled = client.images.pull(f"{reference.rpartition(':')[0]}@{found[reference]}")
    assert pulled.id == id_


def test_existing_image_is_not_pushed_again(
    client: docker.DockerClient, report: Report, put: Put, reference: str, root: Path
) -> None:
    put(reference, "ours")
    found = build.share(client, [reference], report)
    build.pin(found, keep=False, root=root)
    put(reference, "built again, with different content")

    assert build.share(client, [reference], report) == found
    assert build.pin(found, keep=False, root=root) == ""


def test_option_keep_digests_leaves_the_file_of_digests_unchanged(
    client: docker.DockerClient, report: Report, put: Put, reference: str, root: Path
) -> None:
    put(reference, "ours")
    found = build.share(client, [reference], report)

    assert build.pin(found, keep=True, root=root) == ""
    assert digests.known(root) == {}


@pytest.mark.parametrize("keep", [True, False])
def test_refuses_a_different_image_under_the_same_tag(
    client: docker.DockerClient, report: Report, put: Put, reference: str, root: Path, keep: bool
) -> None:
    put(reference, "ours")
    ours = build.share(client, [reference], report)
    build.pin(ours, keep=False, root=root)
    put(reference, "another's")
    build.push(client, reference, print)

    theirs = build.share(client, [reference], report)

    new, old = theirs[reference], ours[reference]
    message = f"the registry has the digest {new}, but .* has {old}; find out"
    with pytest.raises(BuildError, match=message):
        build.pin(theirs, keep=keep, root=root)
    assert digests.known(root) == ours
