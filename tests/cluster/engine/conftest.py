"""A real cluster, with one namespace for each test session."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from engine.providers import Operation, Resource
from engine.providers.kubernetes import KubernetesProvider
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.cluster import find_cluster, read_settings
from engine.providers.kubernetes.manifests import Kind, Ref
from engine.values import Properties
from tests.cluster.engine.stack import Stack
from tests.support.cluster import Cluster


@pytest.fixture(scope="session")
def config(cluster: Cluster) -> Properties:
    """The provider's settings."""
    return {
        "kubeconfig": str(cluster.directory / "kubeconfig"),
        "enableConfigMapMutable": True,
        "enableSecretMutable": True,
    }


@pytest.fixture(scope="session")
def api(config: Properties) -> Api:
    """The cluster's API."""
    return Api(find_cluster(read_settings(config)))


@pytest.fixture(scope="session")
def image(api: Api) -> str:
    """An image that contains a shell and that every node already has."""
    nodes = api.objects(Kind("v1", "Node"), None)
    names: list[str] = [name for i in nodes[0]["status"]["images"] for name in i["names"]]
    references = sorted(name for name in names if "slurmstack/base:" in name)
    assert references, "the local cluster's nodes have the slurmstack/base image"
    return references[0]


@pytest.fixture(scope="session")
def namespace(api: Api) -> Iterator[str]:
    """A namespace. The teardown removes it with everything in it."""
    name = f"engine-test-{secrets.token_hex(3)}"
    ref = Ref(Kind("v1", "Namespace"), None, name)
    api.apply(
        ref,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        "test",
        force=True,
    )
    yield name
    api.delete(ref, "Background")


@pytest.fixture
def stack(config: Properties, api: Api, image: str, namespace: str) -> Iterator[Stack]:
    """A provider for the cluster. The teardown removes everything that a test creates."""
    made: list[Resource] = []
    provider = KubernetesProvider(config, preview=False)
    yield Stack(provider, api, namespace, image, made)
    for resource in reversed(made):
        provider.delete(resource, Operation())


@pytest.fixture
def statuses() -> tuple[list[str], Callable[[str], None]]:
    """Status lines of an operation, and the function that adds a line."""
    lines: list[str] = []
    return lines, lines.append
