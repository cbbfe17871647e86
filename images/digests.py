"""Digests of images in a registry, which `make images` found there; pods name images by them.

Anyone who may push can move a tag to another image. `images/digests.json` is committed, so that a
change of an image is a change of the repository. Images that are not in it are named by their tag
alone.
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
            f"{FILE}: {error}; delete it: `make images` writes a new one"
        ) from None
    if not isinstance(found, dict) or not all(_is_digest(digest) for digest in found.values()):
        raise tags.ContextError(
            f"{FILE}: expected an object of references and digests as sha256:…; "
            "delete it: `make images` writes a new one"
        )
    return found


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:") and len(value) == 71


def differing(found: Mapping[str, str], root: Path = tags.ROOT) -> list[str]:
    """Return one line for each image whose digest in the registry differs from the file."""
    expected = known(root)
    return [
        f"{reference}: the registry has {digest}, but {FILE} has {expected[reference]}; "
        "find out who pushed it, then remove that line to accept it"
        for reference, digest in sorted(found.items())
        if expected.get(reference, digest) != digest
    ]


def write(found: Mapping[str, str], root: Path = tags.ROOT) -> bool:
    """Add digests to the file, and drop those of older tags; return whether it has changed."""
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
