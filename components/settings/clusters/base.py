"""Base of all kinds of clusters."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from components.settings.types import Model

if TYPE_CHECKING:
    from components.settings.models import Settings

Problem = tuple[str, str]
"""A key of the stack file, and the problem with its value."""


def blocked_pods(stack: Settings, pods: str) -> Iterator[Problem]:
    """Refuse to block addresses of pods, which users' pods must reach."""
    network = ipaddress.ip_network(pods)
    for value in stack.network.refuse:
        blocked = ipaddress.ip_network(value)
        if blocked.version == network.version and blocked.overlaps(network):
            yield (
                "network.refuse",
                f"'{value}': contains addresses of pods ({pods}); choose smaller ranges",
            )


class BaseCluster(Model):
    """A Kubernetes cluster; each subclass has its own `kind`."""

    makes_machines: ClassVar[bool] = False
    """Whether a deploy sets up the machines, and the operators for their GPUs and networks."""
    brings_driver: ClassVar[bool] = False
    """Whether machines with NVIDIA GPUs come with the driver and the container toolkit."""

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Yield conflicts between this cluster and the other settings."""
        return iter(())

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Yield settings that are valid, but fail unless the operator does more by hand."""
        return iter(())
