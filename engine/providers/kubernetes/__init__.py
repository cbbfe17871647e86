"""The Kubernetes provider: any kind of object, by server-side apply, with readiness waited for."""

from engine.providers.kubernetes.provider import KubernetesProvider

__all__ = ["KubernetesProvider"]
