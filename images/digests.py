"""Digests of the images in a registry: `make images` records them, and pods use them.

A user who may push can move a tag to another image. `images/digests.json` is committed, so an image
changes only with a commit. Pods refer to images that are not in the file by their tag alone.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from images import tags

FILE = "images/digests.json"


def pinned(name: str, registry: str | None, root: Path = tags.ROOT) -> str:
    """Return an image's reference, with its digest if known. Raises ContextError."""
    reference = tags.reference(name, registry, root)
    digest = known(root).get(reference)
    return f"{reference}@{digest}" if digest else reference


@cache
def known(root: Path = tags.ROOT) -> Mapping[str, str]:
    """Return digests by reference, `registry/slurmstack/name:tag`. Raises ContextError."""
    path = root / FILE
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise tags.ContextError(
            f"{FILE}: {error}; delete it, and run `make images` to write a new one"
        ) from None
    if not isinstance(found, dict) or not all(_is_digest(digest) for digest in found.values()):
        raise tags.ContextError(
            f"{FILE}: expected an object of references and digests as sha256:…; "
            "delete it, and run `make images` to write a new one"
        )
    return found


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:") and len(value) == 71


def differing(found: Mapping[str, str], root: Path = tags.ROOT) -> list[str]:
    """Return one line for each image whose digest in the registry differs from the file."""
    expected = known(root)
    return [
        f"{reference}: the registry has {digest}, but {FILE} has {expected[reference]}; "
        f"find out who pushed it; to accept it, remove its line from {FILE}"
        for reference, digest in sorted(found.items())
        if expected.get(reference, digest) != digest
    ]


def write(found: Mapping[str, str], root: Path = tags.ROOT) -> bool:
    """Add digests to the file, and drop digests of older tags. Return whether it has changed."""
    repositories = {reference.rpartition(":")[0] for reference in found}
    others = {
        reference: digest
        for reference, digest in known(root).items()
        if reference.rpartition(":")[0] not in repositories
    }
    wanted = {**others, **found}
    if wanted == known(root):
        return False
    (root / FILE).write_text(json.dumps(wanted, indent=2, sort_keys=True) + "\n")
    known.cache_clear()
    return True
