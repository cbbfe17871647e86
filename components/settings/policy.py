"""Settings of the policy pack (policy/). The Pulumi program ignores these settings."""

from components.settings.types import Line, Model, Path, Registry, ResourcePattern, Word


class Policy(Model):
    """What the policy pack permits in this stack, in addition to what it permits in all stacks."""

    registries: tuple[Registry, ...] = ()
    """Allowed image registries, in addition to the stack's own."""
    host_paths: tuple[Path, ...] = ()
    """Folders of Kubernetes nodes that volumes may use, including everything below them."""
    exceptions: dict[Word, dict[ResourcePattern, Line]] = {}
    """For each policy, the exempt resources and why. Write a resource as its Pulumi name, or as
    type and name, such as `kubernetes:core/v1:Service::login-service`; `*` matches any text."""
