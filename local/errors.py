"""The exception whose message is shown to the user."""


class LocalError(Exception):
    """The command cannot continue. The message is one line that says what to do."""
