"""The one error of this package."""


class ImageError(Exception):
    """An image cannot be used; the message is one line with the image and a remedy."""
