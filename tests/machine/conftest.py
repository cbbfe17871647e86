"""One virtual machine for all tests of this folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import host
from local.paths import CACHE
from tests.machine import disks
from tests.machine.machine import Machine, started
from tests.support.commands import execute


@pytest.fixture(scope="session")
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A stock Debian with this project's files and images. No part of the project runs yet."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    folder = tmp_path_factory.mktemp("machine")
    key, payload = folder / "key", disks.Payload(CACHE / "payload")
    with capture.global_and_fixture_disabled():
        execute(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
        system = disks.system(print)
        client = host.engine(print)
        disks.payload(client, payload, Path(f"{key}.pub").read_text().strip(), print)
    try:
        with started(system, payload, key, folder / "console") as machine:
            yield machine
    finally:
        shutil.rmtree(payload.folder)
