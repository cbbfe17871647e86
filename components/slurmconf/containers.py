"""Render the files with the site's settings for container images that users run.

`agents/containers/settings.py` reads settings.json, skopeo reads registries.conf, and
`spank/containers/start.c` reads the other files.
"""

import json
from collections.abc import Iterator

from components.settings.containers import Containers, ImageRegistry

_MIB = 1 << 20


def container_files(containers: Containers) -> dict[str, str]:
    """Return the files by name, without empty files."""
    settings = {
        "allowed": containers.allowed,
        "cache": containers.cache,
        "cache_size": containers.cache_size * _MIB,
        "fresh_for": containers.fresh_for,
        "image_size": containers.image_size * _MIB,
        **({"site_cache": containers.site_cache} if containers.site_cache else {}),
    }
    variables = "".join(
        f"{name}={value}\n" for name, value in sorted(containers.environment.items())
    )
    files = {
        "environment": variables,
        "mounts": ",".join(containers.mounts),
        "registries.conf": "\n".join(_registries(containers)),
        "settings.json": json.dumps(settings, sort_keys=True, indent=1) + "\n",
    }
    return {name: text for name, text in files.items() if text}


def plugin_defaults(containers: Containers) -> dict[str, str]:
    """Return the container plugin's arguments for the options whose default the settings change."""
    chosen = {
        "mount_home": containers.mount_home,
        "remap_root": containers.remap_root,
        "entrypoint": containers.entrypoint,
        "writable": containers.writable,
    }
    return {
        name: "yes" if on else "no"
        for name, on in chosen.items()
        if on != Containers.model_fields[name].default
    }


def _registries(containers: Containers) -> Iterator[str]:
    """Render containers-registries.conf(5), version 2."""
    for registry in containers.registries:
        yield from _registry(registry)
    if containers.registries:
        yield ""


def _registry(registry: ImageRegistry) -> Iterator[str]:
    insecure = f"insecure = {'true' if registry.insecure else 'false'}"
    yield from ("[[registry]]", f'location = "{registry.name}"', insecure)
    for mirror in registry.mirrors:
        yield from ("[[registry.mirror]]", f'location = "{mirror}"', insecure)
