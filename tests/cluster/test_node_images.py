"""Images are unpacked once on a machine, for all nodes."""

from collections.abc import Iterator
from typing import Any

import docker
import pytest

from images import tags
from local import images
from local.containers import LABEL_UNPACKED, Engine
from tests.support.cluster import Cluster

BASE = tags.reference("base", None)
MIB = 1024


def test_new_nodes_unpack_nothing_themselves(cluster: Cluster) -> None:
    for name in ("node-0", "node-1"):
        output: Any = cluster.computer(name).exec_run("du -sk /var/lib/containerd").output
        # All images take gigabytes; records and what containers write, some megabytes.
        assert int(output.split()[0]) < 300 * MIB


@pytest.fixture
def unpacked_base(cluster: Cluster) -> Iterator[str]:
    """A volume with one image unpacked, which no node relies on; its name."""
    client = docker.from_env()
    volume = images.unpacked(client, node_image(cluster), [BASE], print)
    yield volume
    client.volumes.get(volume).remove()


def node_image(cluster: Cluster) -> str:
    return str(cluster.computer("node-0").attrs["Config"]["Image"])


def test_what_was_cut_short_is_begun_again_and_takes_nothing_from_nodes(
    cluster: Cluster, unpacked_base: str
) -> None:
    client, said = docker.from_env(), list[str]()
    cut = "cd /srv; rm complete; echo broken >io.containerd.metadata.v1.bolt/meta.db"
    shell, at = ["bash", "-ec", cut], {unpacked_base: {"bind": "/srv"}}
    client.containers.run(node_image(cluster), entrypoint=shell, volumes=at, remove=True)

    assert images.unpacked(client, node_image(cluster), [BASE], said.append) == unpacked_base
    assert any("unpack 1 images" in line for line in said)

    said.clear()
    assert images.unpacked(client, node_image(cluster), [BASE], said.append) == unpacked_base
    assert said == []
    kept = {one.name for one in client.volumes.list(filters={"label": LABEL_UNPACKED})}
    assert {*Engine(client, cluster.stack).volumes().values()} < kept
