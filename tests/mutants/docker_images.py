"""Images that faults have built."""

from collections.abc import Iterable

from docker.errors import APIError

from local import host


def remove_images(references: Iterable[str]) -> None:
    """Remove those of the images that Docker has; one that is in use stays."""
    client = host.connect()
    if client is None:
        return
    for reference in references:
        try:
            client.images.remove(reference)
        except APIError:
            continue
