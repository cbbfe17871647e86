"""The machine unpacks an image once for all nodes of its local clusters."""

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


def test_new_nodes_do_not_unpack_images(cluster: Cluster) -> None:
    for name in ("node-0", "node-1"):
        output: Any = cluster.computer(name).exec_run("du -sk /var/lib/containerd").output
        # Unpacked images take gigabytes; records and files that containers write take some MB.
        assert int(output.split()[0]) < 300 * MIB


def test_pods_of_the_shared_cluster_run_with_runc(cluster: Cluster) -> None:
    """The other clusters run pods with crun, which keeps its state in other files."""
    listing = ["sh", "-c", "ls /run/containerd/runc/k8s.io/*"]
    output: Any = cluster.computer("node-0").exec_run(listing).output
    assert "state.json" in output.decode().split()


@pytest.fixture
def unpacked_base(cluster: Cluster) -> Iterator[str]:
    """Yield the name of a volume with one unpacked image that no node uses."""
    client = docker.from_env()
    volume = images.unpacked(client, node_image(cluster), [BASE], print)
    yield volume
    client.volumes.get(volume).remove()


def node_image(cluster: Cluster) -> str:
    return str(cluster.computer("node-0").attrs["Config"]["Image"])


def test_interrupted_unpacking_starts_again_and_nodes_keep_their_volumes(
    cluster: Cluster, unpacked_base: str
) -> None:
    client, messages = docker.from_env(), list[str]()
    cut = "cd /srv; rm complete; echo broken >io.containerd.metadata.v1.bolt/meta.db"
    shell, at = ["bash", "-ec", cut], {unpacked_base: {"bind": "/srv"}}
    client.containers.run(node_image(cluster), entrypoint=shell, volumes=at, remove=True)

    assert images.unpacked(client, node_image(cluster), [BASE], messages.append) == unpacked_base
    assert any("unpacking 1 images" in line for line in messages)

    messages.clear()
    assert images.unpacked(client, node_image(cluster), [BASE], messages.append) == unpacked_base
    assert messages == []
    kept = {one.name for one in client.volumes.list(filters={"label": LABEL_UNPACKED})}
    assert {*Engine(client, cluster.stack).volumes().values()} < kept
