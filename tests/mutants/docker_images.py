"""Images that were built with faults."""

from collections.abc import Iterable

from docker.errors import APIError

from local import host


def remove_images(references: Iterable[str]) -> None:
    """Remove the images that exist and are not in use."""
    client = host.connect()
    if client is None:
        return
    for reference in references:
        try:
            client.images.remove(reference)
        except APIError:
            continue
