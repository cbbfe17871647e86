"""The Kubernetes provider. It applies objects of any kind, and waits until they are ready."""

from engine.providers.kubernetes.provider import KubernetesProvider

__all__ = ["KubernetesProvider"]
