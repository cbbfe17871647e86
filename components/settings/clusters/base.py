"""What is common to clusters of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from components.settings.types import Model

if TYPE_CHECKING:
    from components.settings.models import Settings

Problem = tuple[str, str]
"""A key of the stack's, and what is wrong there."""


class BaseCluster(Model):
    """A Kubernetes cluster; its subclasses have a `kind` of their own."""

    makes_machines: ClassVar[bool] = False
    """Whether a deploy makes the machines, and what GPUs and networks on them need."""
    brings_driver: ClassVar[bool] = False
    """Whether machines with NVIDIA's GPUs come with the driver and the container toolkit."""

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """What of the other settings does not fit this cluster."""
        return iter(())
