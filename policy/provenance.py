"""Rules about images and charts: their origin, and their exact versions."""

import re
from collections.abc import Iterator

from policy.allowed import Allowed
from policy.manifests import Container, at, containers, kind
from policy.rule import About, Resource, Rule, over

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_CONTENT_TAG = re.compile(r":[0-9a-f]{12,64}$")
"""A tag that is a digest of the image's sources, as for images/."""
_EXACT = re.compile(r"v?\d+(\.\d+){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def _images(resource: Resource, allowed: Allowed) -> Iterator[str]:
    def doubtful(container: Container) -> Iterator[str]:
        image = str(container.spec.get("image") or "")
        if not any(image.startswith(f"{registry}/") for registry in allowed.registries):
            yield f"{container.name} has {image or 'no image'}, from no allowed registry"
        if not (_DIGEST.search(image) or _CONTENT_TAG.search(image)):
            yield f"{container.name} has {image or 'no image'}, which may be another tomorrow"

    return over(containers(resource), doubtful)


IMAGES = Rule(
    About(
        "images",
        "Images are named by a digest or a tag of their content, and come from allowed registries",
        "another image under the same name would run on some nodes, with the rights that were"
        " given to this one",
        "name the image by its digest, and push it to the stack's registry or put its own under"
        " policy.registries in the stack's config",
    ),
    _images,
)


def _charts(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) in ("Release", "Chart") and "helm.sh" in resource.type:
        version = at(resource.props, "version")
        if not _EXACT.fullmatch(str(version or "")):
            yield f"chart {at(resource.props, 'chart')} has the version {version or 'of the day'}"


CHARTS = Rule(
    About(
        "charts",
        "Helm charts have one exact version",
        "a deploy would otherwise bring what the repository has that day, and differ from the"
        " preview",
        "set version to a whole one, as 1.2.3",
    ),
    _charts,
)
