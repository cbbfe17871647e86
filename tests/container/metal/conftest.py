"""Three machines for all tests of this folder."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local import binaries, certificates, debian, host, node_image
from local.configuration import Node
from local.containers import Engine
from local.paths import LOCK, locked
from tests.container.metal.lab import (
    KUBEADM,
    MACHINES,
    Lab,
    Machine,
    kubernetes_images,
    machine_image,
    prepare,
    saved,
    start,
    the_lab,
)


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")
    client = host.engine(print)
    # Take the lock, because other test runs may build the same images at the same time.
    with locked(LOCK, print):
        debian.ensure_base_image(client, print)
        built = binaries.ensure(print)
        node, system = node_image.ensure(client, built, print), node_image.system_image(built)
    names = kubernetes_images(binaries.ensure_further(KUBEADM, print))
    (pause,) = [name for name in names if "/pause:" in name]
    image = machine_image(client, node, pause, tmp_path_factory.mktemp("image"))

    stack = f"test-metal-{secrets.token_hex(4)}"
    directory = tmp_path_factory.mktemp("machines")
    key, public = certificates.new_ssh_key("operator")
    engine = Engine(client, stack)
    try:
        network = engine.ensure_network()
        nodes = [Node(ordinal, network) for ordinal in range(MACHINES)]
        with saved(client, node, system, names, directory / "images/kubernetes.tar"):
            for one in nodes:
                start(engine, image, one, directory, public)
            containers = engine.nodes()
            machines = [Machine(one.name, one.address, containers[one.ordinal]) for one in nodes]
            with ThreadPoolExecutor(MACHINES) as pool:
                list(pool.map(prepare, machines))
        yield the_lab(tmp_path_factory.mktemp("stack"), machines, key, system, nodes)
    finally:
        engine.remove_all()
