"""The site's settings for container images that users run, on login nodes and workers."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components import conventions as c
from components import pods

_CREDENTIALS = ".dockerconfigjson"
"""Entry of a Secret of type kubernetes.io/dockerconfigjson."""


@dataclass(frozen=True)
class UserImagesArgs:
    namespace: pulumi.Input[str]
    files: Mapping[str, str]
    """Files by name."""
    credentials_secret: str | None = None


class UserImages(pulumi.ComponentResource):
    """A ConfigMap with the site's settings for users' images, as files. When a file changes,
    running pods see the new content."""

    mounted: pods.Mounted
    """Volume and mount for login nodes and workers."""

    def __init__(
        self, name: str, args: UserImagesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("userimages", "UserImages"), name, None, opts)
        config = pods.config_map(
            f"{name}-config",
            c.USER_IMAGES_CONFIG,
            args.namespace,
            dict(sorted(args.files.items())),
            pulumi.ResourceOptions(parent=self),
        )
        sources: list[pods.Spec] = [{"configMap": {"name": config.metadata.name}}]
        if args.credentials_secret:
            items = [{"key": _CREDENTIALS, "path": "auth.json"}]
            sources.append({"secret": {"name": args.credentials_secret, "items": items}})
        volume = {
            "name": "user-images",
            "projected": {"sources": sources, "defaultMode": 0o444},
        }
        self.mounted = pods.mounted(volume, c.USER_IMAGES, read_only=True)
        self.register_outputs({"config": config.metadata.name})
