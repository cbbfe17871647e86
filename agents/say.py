"""What agents tell: a line each, which says how grave it is; see docs/logs.md.

It runs on the standard library alone: checks on nodes tell by it as well.
"""

import json
import sys
from typing import Literal

Level = Literal["info", "warn", "error"]


def logfmt(level: Level, text: str) -> str:
    """The line of a daemon, whatever there is in the text. When it was, the kubelet writes before
    it."""
    return f"level={level} msg={json.dumps(text, ensure_ascii=False)}"


def say(level: Level, text: str) -> None:
    """Tells something of a daemon's."""
    print(logfmt(level, text), file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """Tells why a command, or a Job, whose last words a deploy shows, has failed: a sentence, as
    people read it."""
    print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
