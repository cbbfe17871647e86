"""Read a project: the contents of Pulumi.yaml, and the paths of its files and its state."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from engine.config import StackFile, read_stack_file
from engine.errors import EngineError
from stackfile import ConfigValue, StackFileError, parse, parse_config

_NAMES: Final = ("Pulumi.yaml", "Pulumi.yml")
_PACK: Final = "PulumiPolicy.yaml"
_PROTECTED: Final = "protected.yaml"
"""An optional file of a project.

For each protected resource, it lists the settings whose edit would replace or delete the resource.
Errors name these settings.
"""
_BACKEND: Final = "PULUMI_BACKEND_URL"


@dataclass(frozen=True)
class Project:
    """A Pulumi project. ``root`` is the directory of its Pulumi.yaml."""

    root: Path
    file: Path
    name: str
    main: Path
    interpreter: Path
    defaults: dict[str, ConfigValue]
    backend: str | None
    settings: Mapping[str, Sequence[str]]
    """The contents of `_PROTECTED`."""

    def stack_file(self, stack: str) -> Path:
        """Return the path of the stack's config."""
        return self.root / f"Pulumi.{stack}{self.file.suffix}"

    def read_stack(self, stack: str) -> StackFile:
        """Return the stack's config, with the project's defaults for keys that are not set.

        Raises EngineError.
        """
        file = read_stack_file(self.stack_file(stack))
        return StackFile(
            file.path,
            {**self.defaults, **file.config},
            file.encryption_salt,
            file.secrets_provider,
        )

    def state_directory(self) -> Path:
        """Return the directory that contains the state.

        PULUMI_BACKEND_URL names it, else the key `backend` of Pulumi.yaml. The default is
        .local/state. Raises EngineError if the URL does not name a local directory.
        """
        url = os.environ.get(_BACKEND) or self.backend
        if not url:
            return self.root / ".local" / "state"
        if not url.startswith("file://"):
            raise EngineError(
                f"backend {url}: this engine stores state only in a directory; set {_BACKEND} to a"
                " URL such as file:///var/lib/pulumi"
            )
        text = unquote(urlsplit(url)._replace(scheme="", netloc="", query="").geturl())
        host = urlsplit(url).netloc  # the first part of the path, as in file://~/state
        path = Path(host + text).expanduser()
        return path if path.is_absolute() else (self.root / path).resolve()


@dataclass(frozen=True)
class PackProject:
    """A policy pack. ``root`` is the absolute path of its folder, ``path`` the user's argument."""

    root: Path
    path: str
    version: str
    interpreter: Path


def find_pack(path: Path) -> PackProject:
    """Return the policy pack in a folder. Raises EngineError."""
    root = path.resolve()
    file = root / _PACK
    document = _document(file)
    options = _runtime_options(file, document.get("runtime"))
    return PackProject(
        root, str(path), str(document.get("version") or ""), _interpreter(file, options)
    )


def find_project(start: Path) -> Project:
    """Return a directory's project: the nearest Pulumi.yaml there or above. Raises EngineError."""
    start = start.resolve()
    for directory in (start, *start.parents):
        for name in _NAMES:
            if (directory / name).is_file():
                return _read(directory / name)
    raise EngineError(
        f"no Pulumi.yaml in {start} or a folder above it; run the command in the project's folder,"
        " or pass --cwd"
    )


def _read(file: Path) -> Project:
    document = _document(file)
    name = document.get("name")
    if not isinstance(name, str) or not name:
        given = "is missing" if name is None else f"{name!r}"
        raise EngineError(f"{file}: name: {given}: expected text, such as name: slurmstack")
    options = _runtime_options(file, document.get("runtime"))
    root = file.parent
    return Project(
        root=root,
        file=file,
        name=name,
        main=(root / str(document.get("main") or ".")).resolve(),
        interpreter=_interpreter(file, options),
        defaults=_defaults(file, name, document.get("config")),
        backend=(document.get("backend") or {}).get("url"),
        settings=_document(root / _PROTECTED) if (root / _PROTECTED).exists() else {},
    )


def _document(file: Path) -> dict[str, Any]:
    try:
        document = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(
            f"{file}: cannot be read: {error.strerror}; check its path and permissions"
        ) from error
    except UnicodeDecodeError:
        raise EngineError(f"{file}: expected text in UTF-8; save the file as UTF-8") from None
    except StackFileError as error:
        raise EngineError(f"{file}: {error}") from None
    if not isinstance(document, dict):
        raise EngineError(f"{file}: expected a mapping with the keys `name` and `runtime`")
    return document


def _runtime_options(file: Path, runtime: Any) -> dict[str, Any]:
    if isinstance(runtime, str):
        runtime = {"name": runtime}
    if not isinstance(runtime, dict) or runtime.get("name") != "python":
        shown = runtime.get("name") if isinstance(runtime, dict) else runtime
        raise EngineError(
            f"{file}: runtime: {shown!r}: this engine runs only Python programs; deploy this"
            " project with the `pulumi` command"
        )
    options = runtime.get("options") or {}
    return dict(options)


def _interpreter(file: Path, options: dict[str, Any]) -> Path:
    virtualenv = options.get("virtualenv")
    if not virtualenv:
        return Path(sys.executable)
    interpreter = file.parent / str(virtualenv) / "bin" / "python"
    if not interpreter.exists():
        raise EngineError(
            f"{file}: runtime.options.virtualenv: {virtualenv}: this folder has no bin/python;"
            f" create the environment with `python3 -m venv {virtualenv}`, and install the"
            " requirements into it"
        )
    return interpreter


def _defaults(file: Path, name: str, config: Any) -> dict[str, ConfigValue]:
    """Return the values of Pulumi.yaml's ``config``: plain, or under ``value`` or ``default``."""
    values: dict[str, Any] = {}
    for key, entry in (config or {}).items():
        if not isinstance(entry, dict):
            values[key] = entry
        elif "value" in entry or "default" in entry:
            values[key] = entry.get("value", entry.get("default"))
    try:
        return parse_config(values, namespace=name)
    except StackFileError as error:
        raise EngineError(f"{file}: {error}") from error
