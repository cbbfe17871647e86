"""Containers and networks for all tests of this folder."""

import random
from collections.abc import Iterator

import pytest
from docker.models.containers import Container
from docker.types import IPAMConfig, IPAMPool

from components import conventions as c
from local import host
from tests.container.network.world import ASK, OPEN, SERVE, World
from tests.support.containers import containers, put
from tests.support.waiting import eventually


def _address(container: Container, network_name: str, key: str = "IPAddress") -> str:
    container.reload()
    return str(container.attrs["NetworkSettings"]["Networks"][network_name][key])


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    client = host.engine(print)
    # Choose a random subnet, because other tests may run on this machine at the same time.
    third = random.randrange(256)
    pools = [f"169.254.{third}.0/24", f"fd00:{random.randrange(1 << 16):x}:{third:x}::/64"]
    with containers("network-test") as start:
        options = {"entrypoint": "", "security_opt": ["seccomp=unconfined"]}
        pod, rest = start("agents", **options), start("agents", **options)
        common = str(rest.name).rpartition("-")[0]
        link_local, cluster = f"{common}-link-local", f"{common}-cluster"
        ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet) for subnet in pools])
        networks = {
            client.networks.create(link_local, internal=True, enable_ipv6=True, ipam=ipam): [],
            client.networks.create(cluster, internal=True): [
                f"kubernetes.default.svc.{c.CLUSTER_DOMAIN}"
            ],
        }
        try:
            for one, names in networks.items():
                one.connect(pod)
                one.connect(rest, aliases=names)
            put(rest, {"/serve": SERVE})
            put(pod, {"/ask": ASK})
            rest.exec_run(["python3", "/serve"], detach=True)
            created = World(
                start=start,
                pod=pod,
                rest=rest,
                metadata=_address(rest, link_local),
                refused6=_address(rest, link_local, "GlobalIPv6Address"),
                api=_address(rest, cluster),
                anybody=_address(rest, common),
            )
            eventually(
                "the server answers", lambda: created.ask(0, created.anybody, OPEN) == "answered"
            )
            yield created
        finally:
            for one in networks:
                for container in (pod, rest):
                    one.disconnect(container, force=True)
                one.remove()
