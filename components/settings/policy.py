"""What the policy pack (policy/) allows in this stack alone; the program reads none of it."""

from components.settings.types import Line, Model, Path, Registry, ResourcePattern, Word


class Policy(Model):
    """What is allowed here beside what the policy pack allows in every stack."""

    registries: tuple[Registry, ...] = ()
    """Registries beside the stack's own that images may come from."""
    host_paths: tuple[Path, ...] = ()
    """Folders of Kubernetes nodes that volumes may be, with all below them."""
    exceptions: dict[Word, dict[ResourcePattern, Line]] = {}
    """By rule and then by resource, why the rule does not hold there. A resource is meant by its
    name in Pulumi, or by type and name as `kubernetes:core/v1:Service::login-service`; `*` is any
    text."""
