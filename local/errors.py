"""The exception whose message is shown to the user."""


class LocalError(Exception):
    """The local cluster cannot be provided. The message is one line with the remedy."""
