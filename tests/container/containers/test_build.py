"""Images that users build in jobs."""

import pytest

from components import conventions as c
from tests.support.containers import put
from tests.support.imagesite import ACCOUNT, Site, run

HOME = "/home/researcher"
DOCKERFILE = """
FROM {image}
WORKDIR /usr
RUN echo built >/made && chown 33:33 /made
COPY own /own
ENV COLOUR=green
"""


@pytest.fixture(scope="module")
def built(running: Site, image: str) -> str:
    """Directory of an image that ch-image built."""
    files = {"Dockerfile": DOCKERFILE.format(image=image), "own": "of the user\n"}
    place = f"{c.JAIL}{HOME}/build"
    put(running.node.worker.container, {f"{place}/{k}": text for k, text in files.items()})
    login, password = ACCOUNT
    running.node.user(
        f"export USER=researcher CH_IMAGE_STORAGE={HOME}/ch CH_IMAGE_USERNAME={login} "
        f"CH_IMAGE_PASSWORD='{password}'; srun --quiet bash -c 'cd {HOME}/build "
        f"&& ch-image --auth build --tag built . && ch-convert built {HOME}/built' 2>&1"
    )
    return f"{HOME}/built"


def test_user_can_run_an_image_built_in_a_job(site: Site, built: str) -> None:
    output = run(site, f"--container-image={built}", "bash -c 'cat /made /own; echo $COLOUR $PWD'")

    assert output.splitlines() == ["built", "of the user", "green /usr"]
