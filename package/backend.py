"""Build the Python package `slurmstack`, with the parts of this project that a program needs.

In the checkout, these parts are separate packages (`components`, `agents`, …). Such names could
collide with packages of other projects. The build therefore moves the parts into `slurmstack`, and
renames them in imports. The build also records the images' tags, because only a checkout can derive
them from the images' files. setuptools does the rest (PEP 517).
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta

ROOT: Final = Path(__file__).resolve().parent.parent
NAME: Final = "slurmstack"
PARTS: Final = ("agents", "components", "monitoring", "stackfile")
"""Packages that the component imports or reads files from."""
IMAGES: Final = ("__init__.py", "digests.json", "digests.py", "tags.py")
"""Files of the package `images` that the component needs.

The component does not need the files from which images are built.
"""
_IMPORT: Final = re.compile(
    rf"^(\s*)(from|import) (package|images|{'|'.join(PARTS)})\b", re.MULTILINE
)
_JUNK: Final = shutil.ignore_patterns(
    "__pycache__", "*.pyc", ".venv", "backend.py", "requirements.txt", "templates"
)

get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
build_sdist = build_meta.build_sdist


def build_wheel(
    wheel_directory: str,
    config_settings: Any = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel, and return its name."""
    target = Path(wheel_directory).resolve()
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)):
        stage(Path(folder))
        return str(build_meta.build_wheel(str(target), config_settings))


def stage(folder: Path) -> None:
    """Write to `folder` a project whose only package is `slurmstack`."""
    for name in ("pyproject.toml", "requirements.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    inside = folder / NAME
    shutil.copytree(ROOT / "package", inside, ignore=_JUNK)
    for part in PARTS:
        shutil.copytree(ROOT / part, inside / part, ignore=_JUNK)
    (inside / "images").mkdir()
    for name in IMAGES:
        if (ROOT / "images" / name).exists():
            shutil.copy(ROOT / "images" / name, inside / "images")
    (inside / "images" / "tags.json").write_text(json.dumps(_tags()))
    for path in inside.rglob("*.py"):
        path.write_text(renamed(path.read_text()))


def renamed(text: str) -> str:
    """Return a module's text, in which imports of the parts are imports from `slurmstack`.

    A renamed `import a.b` would bind the name `slurmstack` instead of `a`. This project therefore
    imports its modules only with `from`.
    """
    return _IMPORT.sub(_renamed, text)


def _renamed(found: re.Match[str]) -> str:
    before, keyword, package = found.groups()
    return f"{before}{keyword} {NAME}" + ("" if package == "package" else f".{package}")


def _tags() -> dict[str, str]:
    sys.path.insert(0, str(ROOT))
    from images import tags

    return {name: tags.tag(name) for name in tags.IMAGES}


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
