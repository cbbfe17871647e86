"""Store the progress of each container's lines in a file that outlives the process."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from agents.logs.lines import SECOND
from agents.say import say

LOOK_BACK = 900 * SECOND
"""Nanoseconds. If an agent finds no file when it starts, it also sends the lines of this time
before its start: the previous agent may have been lost together with its file. Kubernetes takes up
to seven minutes to replace a pod of a lost node."""


class _File(msgspec.Struct):
    begun: int
    """Earliest time of lines to send for containers that have no entry in `sent`."""
    sent: dict[str, int] = {}
    """Time of the last sent line, by container."""


class Sent:
    """Content of the file `path`. Without a valid file, unsent lines start at `now - LOOK_BACK`."""

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        self._known = _File(now - LOOK_BACK)
        self._is_written = False
        try:
            self._known = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            say(
                "warn",
                f"{path}: cannot read which log lines were sent: {error}; no action needed: "
                f"the agent sends the lines of the last {LOOK_BACK // SECOND} s, some of them "
                "perhaps twice",
            )

    def since(self, container: str) -> int:
        """Return the earliest time of a container's unsent lines."""
        return self._known.sent.get(container, self._known.begun)

    def moved(self, container: str, time: int) -> None:
        self._known.sent[container] = time
        self._is_written = False

    def keep(self, uids: Collection[str]) -> None:
        """Forget all containers except the containers of these pods."""
        kept = {key: time for key, time in self._known.sent.items() if key.split("/")[0] in uids}
        self._is_written = self._is_written and kept == self._known.sent
        self._known.sent = kept

    def write(self) -> None:
        """Write the file if the progress has changed. Raises `OSError`."""
        if self._is_written:
            return
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._known))
        new.replace(self._path)
        self._is_written = True
