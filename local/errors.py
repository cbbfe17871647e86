"""The one exception that is shown to the user."""


class LocalError(Exception):
    """The cluster cannot be provided like this; the text is one line with the remedy."""
