"""The one exception that is meant for people."""


class LocalError(Exception):
    """The cluster cannot be had like this; the text is one line with the remedy."""
