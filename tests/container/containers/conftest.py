"""Two nodes and a registry for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support import ociimages
from tests.support.containers import containers
from tests.support.imagesite import Site, image_site, volume
from tests.support.ociimages import Entry
from tests.support.waiting import eventually

WELCOME = '#!/bin/sh\nexport GREETED=$1 COLOUR=blue\ncd /usr\nexec "$@"\n'


@pytest.fixture(scope="package")
def running() -> Iterator[Site]:
    with volume() as jail, containers("slurmstack-test") as start, image_site(start, jail) as site:
        site.give_password("researcher")
        yield site


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    """The site. After the test, the fixture checks that nothing of a job is left on the nodes."""
    yield running
    running.node.controller.run("scancel --user=researcher --quiet; scancel --user=student --quiet")
    for node in running.nodes:
        eventually("nothing of a job is left", node.is_clean)


@pytest.fixture(scope="package")
def image(running: Site) -> str:
    """A small distribution with variables, a working directory and an entrypoint."""
    files = [
        Entry("welcome", WELCOME, mode=0o755),
        Entry("etc/secret", "of another account\n", mode=0o640, owner=33),
    ]
    return running.push(
        "team/small:1",
        ociimages.layout(
            [running.base, ociimages.layer(files)],
            Env=["PATH=/usr/bin", "COLOUR=red and green", "EMPTY="],
            WorkingDir="/data",
            Entrypoint=["/welcome"],
        ),
    )
