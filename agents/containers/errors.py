"""The exception that this package raises for an unusable image."""


class ImageError(Exception):
    """An image is unusable. The message is one line with the image and a remedy."""
