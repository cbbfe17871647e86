"""Base of all kinds of clusters."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from components.conventions import LABEL_NODESET
from components.settings.placement import Toleration, place_of
from components.settings.types import Model

if TYPE_CHECKING:
    from components.settings.models import Settings

Problem = tuple[str, str]
"""A key of the stack file, and the problem with its value."""


def missing_registry(stack: Settings) -> Iterator[Problem]:
    """Require a registry, for clusters whose machines pull the images."""
    if stack.registry is None:
        yield (
            "registry",
            (
                f"is required with cluster.kind '{stack.cluster.kind}', because the machines pull "
                "the images; set 'registry' to a registry that the machines can reach"
            ),
        )


def blocked_pods(stack: Settings, pods: str) -> Iterator[Problem]:
    """Refuse `network.refuse` with addresses of pods, because users' pods must reach other pods."""
    network = ipaddress.ip_network(pods)
    for value in stack.network.refuse:
        blocked = ipaddress.ip_network(value)
        if blocked.version == network.version and blocked.overlaps(network):
            yield (
                "network.refuse",
                (
                    f"'{value}': contains addresses of pods ({pods}), so login sessions and jobs "
                    "could not reach these pods; choose ranges without these addresses"
                ),
            )


def unreachable_machines(stack: Settings) -> Iterator[Problem]:
    """Refuse a node selector for a nodeset's machines if pods do not tolerate these machines.

    The machines have a taint, so that only the nodeset's pods run on them.
    """
    selected = {
        f"placement.{name}": (place_of(name, stack.placement).tolerations, place.node_selector)
        for name, place in stack.placement.items()
    }
    selected |= {
        f"nodesets[{index}]": (nodeset.tolerations, nodeset.node_selector)
        for index, nodeset in enumerate(stack.nodesets)
        if nodeset.node_selector.get(LABEL_NODESET) != nodeset.name
    }
    for place, (tolerations, selector) in selected.items():
        name = selector.get(LABEL_NODESET)
        if name is None or any(_tolerates(each, name) for each in tolerations):
            continue
        yield (
            f"{place}.node_selector.{LABEL_NODESET}",
            (
                f"'{name}': only machines of nodeset '{name}' have this label, and the pods do "
                "not tolerate the taint of these machines; remove the label from 'node_selector'"
            ),
        )


def _tolerates(toleration: Toleration, nodeset: str) -> bool:
    """Return whether pods with this toleration may run on the machines of a nodeset."""
    return (
        toleration.key in (None, LABEL_NODESET)
        and toleration.value in (None, nodeset)
        and toleration.effect in (None, "NoSchedule")
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
        """Yield settings that are valid, but work only if the operator does more by hand."""
        return iter(())
