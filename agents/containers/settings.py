"""The site's settings for images. A deploy writes them to a file, which this module reads."""

import json
import os
import pwd
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from agents.containers.errors import ImageError
from agents.containers.reference import InRegistry

FOLDER: Final = Path("/usr/lib/slurmstack/user-images")
"""Mount point of the settings on nodes and login nodes."""
_GIB: Final = 1 << 30


@dataclass(frozen=True)
class Settings:
    """Settings of the site, with the defaults."""

    cache: str = "~/.cache/slurmstack"
    """Path of the user's cache. ~ is the home directory, and %u is the user's name."""
    site_cache: str | None = None
    """Directory with layers that all users share, or None. The directory's owner adds layers."""
    cache_size: int = 100 * _GIB
    """Limit in bytes for a user's cache. The least recently used images are removed first."""
    image_size: int = 100 * _GIB
    """Limit in bytes for the files of an image."""
    fresh_for: int = 3600
    """Seconds after which a step asks the registry again which image a tag names."""
    allowed: tuple[str, ...] = ()
    """Patterns of permitted registry images, such as 'nvcr.io/*'; an empty tuple permits all."""
    folder: Path = field(default=FOLDER, compare=False)

    def cache_path(self) -> Path:
        """Return the path of the user's cache. `spank/containers/start.c` uses the same path."""
        user = pwd.getpwuid(os.getuid())
        if self.cache.startswith("~"):
            return Path(user.pw_dir + self.cache[1:])
        return Path(self.cache.replace("%u", user.pw_name))

    def above_caches(self) -> str | None:
        """Return the directory that contains all users' caches.

        Returns None if each cache is in the user's home directory.
        """
        if self.cache.startswith("~"):
            return None
        return self.cache.partition("%u")[0].rpartition("/")[0] or "/"

    def site_blobs(self) -> Path | None:
        """Return the directory of the site's layers, or None if the site has none.

        Its files are arranged as in a user's cache (class `Cache`).
        """
        return Path(self.site_cache) / "blobs" if self.site_cache else None

    def check_allowed(self, name: str) -> None:
        """Raise ImageError unless the site permits the image."""
        if self.allowed and not any(fnmatchcase(name, pattern) for pattern in self.allowed):
            raise ImageError(
                f"image {name}: not permitted: this site permits only {', '.join(self.allowed)}: "
                "use another image, or contact the cluster operator"
            )

    @property
    def _registries(self) -> Path:
        return self.folder / "registries.conf"

    def of_skopeo(self) -> tuple[str, ...]:
        """Return the options with which skopeo reads the site's registries and mirrors.

        An option is necessary, because skopeo ignores the variable CONTAINERS_REGISTRIES_CONF.
        """
        if not self._registries.is_file():
            return ()
        return ("--registries-conf", str(self._registries))

    def mirrors_of(self, image: InRegistry) -> Iterator[InRegistry]:
        """Yield the image's references in mirrors, which skopeo tries before the registry."""
        if not self._registries.is_file():
            return
        name = f"{image.registry}/{image.repository}"
        for registry in tomllib.loads(self._registries.read_text()).get("registry", ()):
            if not f"{name}/".startswith(f"{registry['location']}/"):
                continue
            rest = name.removeprefix(registry["location"])
            for mirror in registry.get("mirror", ()):
                host, _, repository = f"{mirror['location']}{rest}".partition("/")
                yield replace(image, registry=host, repository=repository)

    def credentials(self) -> Path:
        """Return the path of the site's credentials. The file may be missing."""
        return self.folder / "auth.json"


def read(folder: Path = FOLDER) -> Settings:
    """Read the settings. Raises ImageError if the file is not a JSON object.

    Ignores unknown keys: during an upgrade, a node can have the new version's settings while it
    still runs the old version's program.
    """
    path = folder / "settings.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return Settings(folder=folder)
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot read {path}: {error}: contact the cluster operator") from None
    values = {each.name: found[each.name] for each in fields(Settings) if each.name in found}
    values["allowed"] = tuple(values.get("allowed", ()))
    return Settings(**values | {"folder": folder})
