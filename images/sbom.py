"""Write a bill of materials of each image: a list of its Debian packages with their versions.

`python -m images.sbom [--stack dev] [--image NAME …] [--folder .local/sbom]`

The format is CycloneDX. The list contains only Debian packages: all other programs in the images
are built from this project's sources, which the image's tag identifies. If Docker does not have an
image, this program pulls it from the stack's registry.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException
from rich.console import Console

from components.settings import SettingsError, read_stack
from images import tags
from images.build import closure, connect, needed, reason
from local import host
from local.errors import LocalError
from local.paths import ROOT

FOLDER: Final = ROOT / ".local/sbom"
_DPKG: Final = "var/lib/dpkg"
_PROGRAM: Final = Path(sys.executable).with_name("debsbom")


def write(client: docker.DockerClient, reference: str, folder: Path) -> Path:
    """Write the bill of materials of one image, and return the file's path.

    Raises LocalError or DockerException.
    """
    name, _, tag = reference.rpartition("/")[2].partition(":")
    file = folder / f"{name}-{tag}.cdx.json"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / _DPKG).mkdir(parents=True)
        _copy_status(client, reference, root / _DPKG)
        done = subprocess.run(
            [
                *(str(_PROGRAM), "generate", "--sbom-type=cdx", f"--root={root}", f"--out={file}"),
                *(f"--distro-name=slurmstack-{name}", f"--distro-version={tag}"),
                # The bill must depend only on the image, not on the time or on random numbers.
                f"--timestamp={tags.snapshot().isoformat()}",
                f"--cdx-serialnumber={uuid.uuid5(uuid.NAMESPACE_URL, f'{name}:{tag}').urn}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise LocalError(f"image {reference}: cannot write its bill of materials: debsbom: {said}")
    return file


def _copy_status(client: docker.DockerClient, reference: str, folder: Path) -> None:
    """Copy dpkg's list of installed packages from an image, without starting a container."""
    container = client.containers.create(reference)
    try:
        chunks, _ = container.get_archive(f"/{_DPKG}/status")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            archive.extract("status", folder, filter="data")
    finally:
        container.remove()


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return 0 if the bills of all images were written."""
    parser = argparse.ArgumentParser(prog="python -m images.sbom", description=__doc__)
    parser.add_argument(
        "--stack", default="dev", help="name of the stack whose images to list (default: dev)"
    )
    parser.add_argument(
        "--image",
        action="append",
        metavar="NAME",
        help=(
            "name of an image whose packages to list, with its parents; may be repeated "
            "(default: all images of the stack)"
        ),
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="folder for the bills of materials (default: .local/sbom)",
    )
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    try:
        settings = read_stack(options.stack, ROOT)
        client = connect(console.print)
        for name in closure(options.image or needed(settings)):
            reference = tags.reference(name, settings.registry)
            if settings.registry and not host.has_image(client, reference):
                client.images.pull(reference)
            print(write(client, reference, options.folder))
    except (SettingsError, tags.ContextError, LocalError) as error:
        return _fail(console, str(error))
    except (DockerException, RequestException) as error:
        return _fail(
            console,
            f"a request to Docker failed: {reason(error)}; check that Docker runs, and run "
            "`make images` to build missing images",
        )
    return 0


def _fail(console: Console, message: str) -> int:
    console.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
