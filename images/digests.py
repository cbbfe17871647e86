"""Read and write `images/digests.json`, which contains the digests of the images in a registry.

Users with push access can move a tag to another image. So `make images` records the digest of each
tag in this file, the file is committed, and pods refer to images by digest. The image of a pod then
changes only with a commit. For an image without a digest in the file, pods use only the tag.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from images import tags

FILE = "images/digests.json"


def pinned(name: str, registry: str | None, root: Path = tags.ROOT) -> str:
    """Return an image's reference for pods. It includes the digest if the file contains one.

    Raises ContextError.
    """
    reference = tags.reference(name, registry, root)
    digest = known(root).get(reference)
    return f"{reference}@{digest}" if digest else reference


@cache
def known(root: Path = tags.ROOT) -> Mapping[str, str]:
    """Return the digests by reference (`registry/slurmstack/name:tag`). Raises ContextError."""
    path = root / FILE
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise tags.ContextError(
            f"{FILE}: cannot read this file: {error}; delete the file, and run `make images` "
            "to write a new file"
        ) from None
    if not isinstance(found, dict) or not all(_is_digest(digest) for digest in found.values()):
        raise tags.ContextError(
            f"{FILE}: expected a JSON object with digests such as sha256:…; delete the file, "
            "and run `make images` to write a new file"
        )
    return found


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:") and len(value) == 71


def differing(found: Mapping[str, str], root: Path = tags.ROOT) -> list[str]:
    """Return an error line for each image whose digest in the registry differs from the file."""
    expected = known(root)
    return [
        (
            f"image {reference}: the registry has the digest {digest}, but {FILE} has "
            f"{expected[reference]}; find out who pushed the image; to accept it, remove its line "
            f"from {FILE}"
        )
        for reference, digest in sorted(found.items())
        if expected.get(reference, digest) != digest
    ]


def write(found: Mapping[str, str], root: Path = tags.ROOT) -> bool:
    """Record digests, and remove the digests of older tags of the same images.

    Returns whether the file has changed.
    """
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
