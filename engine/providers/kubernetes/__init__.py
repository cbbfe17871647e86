"""The Kubernetes provider: it applies any kind of object on the server and waits for readiness."""

from engine.providers.kubernetes.provider import KubernetesProvider

__all__ = ["KubernetesProvider"]
