"""Base of clusters of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from components.settings.types import Model

if TYPE_CHECKING:
    from components.settings.models import Settings

Problem = tuple[str, str]
"""A key of the stack, and what is wrong there."""


class BaseCluster(Model):
    """A Kubernetes cluster; each subclass has its own `kind`."""

    makes_machines: ClassVar[bool] = False
    """Whether a deploy sets up the machines, and what their GPUs and networks require."""
    brings_driver: ClassVar[bool] = False
    """Whether machines with NVIDIA's GPUs come with the driver and the container toolkit."""

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Yield conflicts of the other settings with this cluster."""
        return iter(())
