"""Kubernetes Secrets that the settings define, with credentials from the stack's encrypted
configuration."""

from collections.abc import Mapping
from typing import Final

import pulumi

from components import pods

_REGISTRY_ENTRY: Final = ".dockerconfigjson"
"""Entry of a Secret with the credentials of registries (source: Kubernetes' documentation, types of
Secret)."""


def create(
    resource_name: str,
    secrets: Mapping[str, Mapping[str, pulumi.Input[str]]],
    namespace: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Output[str]]:
    """Create the Secrets and return their names."""
    return [
        pods.secret(
            f"{resource_name}-{name}",
            name,
            namespace,
            {entry: pulumi.Output.secret(value) for entry, value in entries.items()},
            opts,
            "kubernetes.io/dockerconfigjson" if _REGISTRY_ENTRY in entries else "Opaque",
        ).metadata.name
        for name, entries in secrets.items()
    ]
