"""Rules about images and charts: their origin, and their exact versions."""

import re
from collections.abc import Iterator

from policy.allowed import Allowed
from policy.manifests import Container, at, containers, kind
from policy.rule import About, Resource, Rule, over

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_CONTENT_TAG = re.compile(r":[0-9a-f]{12,64}$")
"""Pattern of the tags that images/build.py creates. Such a tag is a digest of the image's
sources."""
_EXACT = re.compile(r"v?\d+(\.\d+){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def _images(resource: Resource, allowed: Allowed) -> Iterator[str]:
    def doubtful(container: Container) -> Iterator[str]:
        image = str(container.spec.get("image") or "")
        if not any(image.startswith(f"{registry}/") for registry in allowed.registries):
            yield f"image {image or '(none)'} of {container.name} is not from an allowed registry"
        if not (_DIGEST.search(image) or _CONTENT_TAG.search(image)):
            yield (
                f"image {image or '(none)'} of {container.name} has neither a digest nor a tag that"
                " images/build.py derives from the content, so its content may change"
            )

    return over(containers(resource), doubtful)


IMAGES = Rule(
    About(
        "images",
        "Images have a digest, or a tag derived from their content, and an allowed registry",
        "under a tag that is not derived from the content, or in a registry of other "
        "people, the content can change, so a node could run other code with the rights of "
        "this image",
        "name the image by its digest, and push it to the stack's registry or add its registry to"
        " policy.registries in the stack's config",
    ),
    _images,
)


def _charts(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) in ("Release", "Chart") and "helm.sh" in resource.type:
        version = at(resource.props, "version")
        if not _EXACT.fullmatch(str(version or "")):
            yield (
                f"chart {at(resource.props, 'chart')} requires an exact version, but its "
                f"version is: {version or 'none'}"
            )


CHARTS = Rule(
    About(
        "charts",
        "Helm charts have an exact version",
        "a deploy could install another version than the preview showed",
        "set version to an exact version such as 1.2.3",
    ),
    _charts,
)
