"""The resources of one test on a real cluster."""

from dataclasses import dataclass, replace
from typing import Any

from engine.providers import Operation, Resource
from engine.providers.kubernetes import KubernetesProvider
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.manifests import Kind, Ref
from engine.values import Properties


@dataclass
class Stack:
    """Call the provider for a resource as the engine does: check, then the operation."""

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
        """Check and create a resource. The teardown removes it."""
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
        """Check and update a resource."""
        inputs = self.provider.check(old.type, old.urn, old.inputs, news)
        assert self.provider.diff(old, inputs).changed, "the inputs differ from the resource"
        outputs = self.provider.update(old, inputs, op or Operation())
        return replace(old, inputs=inputs, outputs=outputs)

    def is_unchanged(self, old: Resource, news: Properties) -> bool:
        """Return whether an update with these inputs would change nothing."""
        inputs = self.provider.check(old.type, old.urn, old.inputs, news)
        return not self.provider.diff(old, inputs).changed

    def live(self, old: Resource) -> dict[str, Any] | None:
        """Return the object from the cluster."""
        namespace, _, name = str(old.id).rpartition("/")
        kind = Kind(str(old.inputs["apiVersion"]), str(old.inputs["kind"]))
        return self.api.get(Ref(kind, namespace or None, name))

    def pod_spec(self, command: str, **container: Any) -> dict[str, Any]:
        """Return a pod that runs a shell command and ends without a grace period."""
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
        """Return a StatefulSet of pods with the spec `pod`."""
        return {
            "metadata": self.meta(name),
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }
