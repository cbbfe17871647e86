"""A real cluster, and a namespace in it for each test session."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine.providers import Operation, Resource
from engine.providers.kubernetes import KubernetesProvider
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.cluster import find_cluster, read_settings
from engine.providers.kubernetes.manifests import Kind, Ref
from engine.values import Properties
from tests.e2e.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the cluster."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.cluster)


@dataclass
class Stack:
    """What the engine does with a resource, without the engine: check, then the operation."""

    provider: KubernetesProvider
    api: Api
    namespace: str
    image: str
    made: list[Resource]

    def meta(self, name: str, **more: Any) -> Properties:
        """Metadata of an object with a fixed name."""
        return {"name": name, "namespace": self.namespace, **more}

    def create(
        self, token: str, name: str, news: Properties, op: Operation | None = None
    ) -> Resource:
        """Check and create; it is removed at the end of the test."""
        resource_type = f"kubernetes:{token}"
        urn = f"urn:pulumi:test::engine::{resource_type}::{self.namespace}-{name}"
        inputs = self.provider.check(resource_type, urn, {}, news)
        meta = inputs["metadata"]
        assert isinstance(meta, dict)
        place = f"{meta['namespace']}/" if "namespace" in meta else ""
        old = Resource(urn, resource_type, name, f"{place}{meta['name']}", inputs, {})
        self.made.append(old)
        made_id, outputs = self.provider.create(resource_type, urn, inputs, op or Operation())
        assert made_id == old.id
        return replace(old, outputs=outputs)

    def update(self, old: Resource, news: Properties, op: Operation | None = None) -> Resource:
        """Check and update."""
        inputs = self.provider.check(old.type, old.urn, old.inputs, news)
        assert self.provider.diff(old, inputs).changed, "there is something to update"
        outputs = self.provider.update(old, inputs, op or Operation())
        return replace(old, inputs=inputs, outputs=outputs)

    def is_unchanged(self, old: Resource, news: Properties) -> bool:
        """Whether the same program would change nothing."""
        inputs = self.provider.check(old.type, old.urn, old.inputs, news)
        return not self.provider.diff(old, inputs).changed

    def live(self, old: Resource) -> dict[str, Any] | None:
        """The object as the cluster has it."""
        namespace, _, name = str(old.id).rpartition("/")
        kind = Kind(str(old.inputs["apiVersion"]), str(old.inputs["kind"]))
        return self.api.get(Ref(kind, namespace or None, name))

    def pod_spec(self, command: str, **container: Any) -> dict[str, Any]:
        """A pod that runs a shell command and ends at once when told to."""
        return {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", command],
                    **container,
                }
            ],
        }

    def stateful_set(self, name: str, pod: dict[str, Any], replicas: int = 1) -> Properties:
        """A StatefulSet of such pods."""
        return {
            "metadata": self.meta(name),
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }


@pytest.fixture(scope="session")
def config(cluster: Cluster) -> Properties:
    """Settings of the provider."""
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
    """An image with a shell that every node has already."""
    nodes = api.objects(Kind("v1", "Node"), None)
    names: list[str] = [name for i in nodes[0]["status"]["images"] for name in i["names"]]
    found = sorted(name for name in names if "slurmstack/base:" in name)
    assert found, "the local cluster's nodes have the slurmstack/base image"
    return found[0]


@pytest.fixture(scope="session")
def namespace(api: Api) -> Iterator[str]:
    """A namespace that is removed with everything in it at the end."""
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
    """A provider for the cluster; what a test makes is removed after it."""
    made: list[Resource] = []
    provider = KubernetesProvider(config, preview=False)
    yield Stack(provider, api, namespace, image, made)
    for resource in reversed(made):
        provider.delete(resource, Operation())


@pytest.fixture
def statuses() -> tuple[list[str], Callable[[str], None]]:
    """Collects the status lines that an operation shows."""
    lines: list[str] = []
    return lines, lines.append
