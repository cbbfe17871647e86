"""The exception for errors of `python -m local`, whose message the user sees."""


class LocalError(Exception):
    """The command cannot continue. The message is one line that says what to do."""
