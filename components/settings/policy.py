"""Settings of the policy pack (policy/). The Pulumi program ignores these settings."""

from typing import Final, Self

from pydantic import model_validator

from components.settings.types import (
    Line,
    Model,
    Path,
    Registry,
    ResourcePattern,
    Word,
    cross_field,
    known_names,
)

POLICIES: Final = frozenset(
    (
        *("added-containers", "charts", "host-namespaces", "host-paths", "idle-exceptions"),
        *("images", "limits", "load-balancers", "made-secrets", "namespaces", "network-policies"),
        *("non-root", "open-secrets", "privileged", "protected-data", "rbac", "replaced-data"),
        "requests",
    )
)
"""Names of all policies. The program must not import the policy pack, so the names are repeated
here. A test compares the names with the pack."""


class Policy(Model):
    """What the policy pack permits for this stack, in addition to what it permits for all
    stacks."""

    registries: tuple[Registry, ...] = ()
    """Allowed image registries, in addition to the stack's own."""
    host_paths: tuple[Path, ...] = ()
    """Folders of Kubernetes nodes that volumes may use, including everything below them."""
    exceptions: dict[Word, dict[ResourcePattern, Line]] = {}
    """For each policy, the exempt resources, each with a reason. Write a resource as its Pulumi
    name, or as type and name, such as `kubernetes:core/v1:Service::login-service`; `*` matches
    any text."""

    @model_validator(mode="after")
    def _exceptions_are_of_policies(self) -> Self:
        for name in self.exceptions:
            if name not in POLICIES:
                raise cross_field(
                    f"exceptions.{name}", f"'{name}' is not a policy; {known_names(name, POLICIES)}"
                )
        return self
