"""Write the log lines of agents, with their levels; see docs/logs.md.

This module needs only the standard library, because checks on nodes use it too.
"""

import json
import sys
from typing import Literal

Level = Literal["info", "warn", "error"]


def logfmt(level: Level, text: str) -> str:
    """Return a daemon's log line. `text` may contain any character. The kubelet adds the time."""
    return f"level={level} msg={json.dumps(text, ensure_ascii=False)}"


def say(level: Level, text: str) -> None:
    """Write a daemon's log line to stderr."""
    print(logfmt(level, text), file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """Write to stderr why a command or a Job failed, in one line.

    A deploy shows the last lines of a Job.
    """
    print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
