"""Find registry credentials in the files of enroot, Docker and the site."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from agents.containers.errors import ImageError
from agents.containers.reference import DEFAULT_REGISTRY, InRegistry

_LINE: Final = re.compile(
    r"machine\s+(?P<machine>\S+)\s+login\s+(?P<login>\S+)\s+password\s+(?P<password>.+)"
)
_OTHER_NAMES: Final = {
    DEFAULT_REGISTRY: ("registry-1.docker.io", "auth.docker.io", "https://index.docker.io/v1/"),
    "nvcr.io": ("authn.nvidia.com",),
}
"""Other names of a registry in files with credentials."""


def find(image: InRegistry, home: Path, site: Path, environment: Mapping[str, str]) -> str | None:
    """Return `LOGIN:PASSWORD` in base64 for the image's registry, or None.

    Searches the user's file of enroot first, then the user's file of Docker, then the site's file.
    If the reference names a user of the registry, only the file of enroot is searched. Raises
    ImageError if a file is unreadable, or if a command for a password fails.
    """
    found = next(_of_enroot(image, _enroot_file(home, environment)), None)
    if found is not None or image.user is not None:
        return found
    for path in (_docker_file(home, environment), site):
        found = _of_docker(image, path)
        if found is not None:
            return found
    return None


def _names(image: InRegistry) -> tuple[str, ...]:
    return (image.registry, *_OTHER_NAMES.get(image.registry, ()))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: cannot read the credentials: {error}: check the file") from None


# --- enroot --------------------------------------------------------------------------------------


def _enroot_file(home: Path, environment: Mapping[str, str]) -> Path:
    config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
    return Path(environment.get("ENROOT_CONFIG_PATH") or f"{config}/enroot") / ".credentials"


def _of_enroot(image: InRegistry, path: Path) -> Iterator[str]:
    for line in _read(path).splitlines():
        match = _LINE.match(line.strip())
        if match is None or match["machine"] not in _names(image):
            continue
        if image.user in (None, match["login"]):
            yield _encode(match["login"], _password(match["password"].strip(), path))


def _password(text: str, path: Path) -> str:
    """Return the password. If it starts with $, it is a shell variable or command: expand it."""
    if not text.startswith("$"):
        return text
    # A shell is safe here, because the file belongs to the user. enroot also uses a shell.
    command = ["/bin/bash", "-euc", f'found="{text}"; printf %s "$found"']
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()[-1:] or [f"code {result.returncode}"]
        raise ImageError(
            f"{path}: cannot expand the password {text}: {reason[0]}: check the variable or command"
        )
    return result.stdout


def _encode(login: str, password: str) -> str:
    return base64.b64encode(f"{login}:{password}".encode()).decode()


# --- Docker --------------------------------------------------------------------------------------


def _docker_file(home: Path, environment: Mapping[str, str]) -> Path:
    return Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _of_docker(image: InRegistry, path: Path) -> str | None:
    text = _read(path)
    try:
        auths = json.loads(text).get("auths", {}) if text else {}
    except (ValueError, AttributeError) as error:
        raise ImageError(f"{path}: cannot read the credentials: {error}: check the file") from None
    for name in (f"{image.registry}/{image.repository}", *_names(image)):
        entry = auths.get(name)
        if isinstance(entry, dict) and isinstance(entry.get("auth"), str):
            return str(entry["auth"])
    return None


# --- skopeo --------------------------------------------------------------------------------------


def write(folder: Path, found: Mapping[str, str]) -> Path:
    """Write credentials to a private file for skopeo's `--authfile`.

    `found` maps each registry to its credentials.
    """
    path = folder / "auth.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"auths": {registry: {"auth": each} for registry, each in found.items()}}, file)
    return path
