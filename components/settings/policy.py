"""Settings of the policy pack (policy/), which the program itself ignores."""

from components.settings.types import Line, Model, Path, Registry, ResourcePattern, Word


class Policy(Model):
    """Permissions of this stack, in addition to what the policy pack allows in every stack."""

    registries: tuple[Registry, ...] = ()
    """Allowed registries of images, in addition to the stack's own."""
    host_paths: tuple[Path, ...] = ()
    """Folders of Kubernetes nodes that volumes may use, including everything below."""
    exceptions: dict[Word, dict[ResourcePattern, Line]] = {}
    """By policy and resource, the reason for an exception. A resource is given by its name in
    Pulumi, or by type and name, as `kubernetes:core/v1:Service::login-service`; `*` matches any
    text."""
