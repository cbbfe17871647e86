"""Exception of this package."""


class ImageError(Exception):
    """An image is unusable. The message is one line with the image and a remedy."""
