"""How far the collector has the lines of each container, in a file that outlives the process."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from agents.logs.lines import SECOND
from agents.say import say

LOOK_BACK = 900 * SECOND
"""How far before its first start an agent reads, for what went unsent when the last one went with
its file. Kubernetes takes up to seven minutes to replace a pod whose node is lost."""


class _File(msgspec.Struct):
    begun: int
    """Lines of containers that it does not name are sent from then on."""
    sent: dict[str, int] = {}
    """The last line's moment, by container."""


class Sent:
    """What is in `path`; `now` counts where there is no such file yet, or one that is broken."""

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        self._known = _File(now - LOOK_BACK)
        self._is_written = False
        try:
            self._known = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            say("warn", f"{path}: {error}; begins {LOOK_BACK // SECOND} s ago")

    def since(self, container: str) -> int:
        """From when on lines of a container may not have been sent."""
        return self._known.sent.get(container, self._known.begun)

    def moved(self, container: str, time: int) -> None:
        self._known.sent[container] = time
        self._is_written = False

    def keep(self, uids: Collection[str]) -> None:
        """Forgets containers of all pods but these."""
        kept = {key: time for key, time in self._known.sent.items() if key.split("/")[0] in uids}
        self._is_written = self._is_written and kept == self._known.sent
        self._known.sent = kept

    def write(self) -> None:
        """Where there is anything new. Raises `OSError`."""
        if self._is_written:
            return
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._known))
        new.replace(self._path)
        self._is_written = True
