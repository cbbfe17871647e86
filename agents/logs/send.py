"""Send each line to an OpenTelemetry receiver until the receiver accepts or refuses the line."""

import asyncio
import gzip
import ssl
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx

from agents.logs import otlp
from agents.logs.metrics import Counts
from agents.logs.otlp import Entry
from agents.logs.sent import Sent
from agents.say import say

ROOM = 2000
"""Maximum number of lines that wait to be sent. At this limit, the agent stops reading logs."""
LINES = 1000
"""Maximum number of lines in a request."""
CHARACTERS = 1024 * 1024
"""Characters at which a request is full, because receivers limit the size of requests."""
GATHER = 1.0
"""Seconds for which the agent collects more lines before it sends a request."""
PAUSE = 1.0
"""Seconds until the agent repeats a failed request. The pause doubles with each further attempt."""
LONGEST_PAUSE = 15.0
LAST = 5.0
"""Seconds for sending the remaining lines after SIGTERM."""


class NotTakenError(Exception):
    """The receiver may accept the request later. The message is one line.

    `after` is the number of seconds that the receiver asks the agent to wait, or 0.
    """

    def __init__(self, said: str, after: float = 0) -> None:
        self.after = after
        super().__init__(said)


class RefusedError(Exception):
    """The receiver refuses the request permanently. The message is one line."""


@dataclass(frozen=True)
class Receiver:
    """Receiver of the lines."""

    endpoint: str
    """Address without the path that the protocol defines."""
    headers: Path | None = None
    """Folder with one file per header, named after the header. The agent reads the files for each
    request, because the kubelet renews them."""
    verify: ssl.SSLContext | bool = True

    async def post(self, http: httpx.AsyncClient, body: bytes) -> tuple[int, str]:
        """Post a request. Returns the number of refused lines, and the reason.

        Raises `NotTakenError` and `RefusedError`.
        """
        try:
            answer = await http.post(
                self.endpoint.rstrip("/") + otlp.PATH,
                content=gzip.compress(body, compresslevel=1),
                headers={
                    **read_headers(self.headers),
                    "Content-Type": "application/json",
                    "Content-Encoding": "gzip",
                },
            )
        except (httpx.RequestError, OSError) as error:
            raise NotTakenError(str(error) or type(error).__name__) from error
        if answer.is_success:
            return otlp.rejected(answer.content)
        said = f"HTTP {answer.status_code} {' '.join(answer.text[:300].split())}".rstrip()
        if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS or answer.is_server_error:
            raise NotTakenError(said, _seconds(answer.headers.get("Retry-After", "")))
        raise RefusedError(said)


def read_headers(folder: Path | None) -> dict[str, str]:
    """Read headers from a Secret's files. Raises `NotTakenError`, which never contains a value."""
    if folder is None:
        return {}
    try:
        # Ignore names that start with a dot, because the kubelet makes these files.
        files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        found = {path.name: path.read_bytes().strip() for path in files}
    except OSError as error:
        problem = (
            f"cannot read the file {error.filename}: {error.strerror}; check that the Secret exists"
        )
        raise NotTakenError(f"monitoring.logs.headers_secret: {problem}") from error
    for name, value in found.items():
        if not all(b" "[0] <= byte <= b"~"[0] for byte in value):
            raise NotTakenError(
                f"monitoring.logs.headers_secret: the value of '{name}' must be one line of "
                "printable ASCII; correct this entry of the Secret"
            )
    return {name: value.decode() for name, value in found.items()}


def _seconds(retry_after: str) -> float:
    """Parse Retry-After (RFC 9110, section 10.2.3). A date is ignored."""
    return min(float(retry_after), LONGEST_PAUSE) if retry_after.isdecimal() else 0


class Sender:
    """Sends the entries of the queue `lines`, which contains at most `ROOM` entries."""

    def __init__(
        self,
        receiver: Receiver,
        cluster: str,
        namespace: str,
        sent: Sent,
        counts: Counts,
    ) -> None:
        self.lines: asyncio.Queue[Entry] = asyncio.Queue(ROOM)
        self._receiver = receiver
        self._cluster = cluster
        self._namespace = namespace
        self._sent = sent
        self._counts = counts
        self._http = httpx.AsyncClient(verify=receiver.verify, timeout=30, trust_env=False)
        self._held: list[Entry] = []
        """Entries of the current request."""
        self._said = ""

    async def run(self) -> None:
        """Send lines until the task is cancelled. Raises `OSError` if the file with the progress
        cannot be written."""
        while True:
            await self._gather()
            await self._deliver()

    async def finish(self) -> None:
        """Wait until `run` has sent all lines, for at most `LAST` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await self.lines.join()

    async def _gather(self) -> None:
        self._held.append(await self.lines.get())
        self._counts.waiting_since = self._counts.clock()
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER):
                while len(self._held) < LINES and size < CHARACTERS:
                    self._held.append(await self.lines.get())
                    size += len(self._held[-1].line.text)

    async def _deliver(self) -> None:
        """Send the held entries until the receiver accepts or refuses them."""
        body, pause = otlp.request(self._held, self._cluster, self._namespace), PAUSE
        while True:
            try:
                refused, why = await self._receiver.post(self._http, body)
                break
            except NotTakenError as error:
                self._say(f"cannot send log lines to this receiver: {error}; trying again")
                await asyncio.sleep(error.after or pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except RefusedError as error:
                refused, why = len(self._held), str(error)
                break
        self._say(
            (
                f"the receiver refuses log lines: {why}; the refused lines are lost; see the "
                "receiver's own log"
            )
            if refused
            else ""
        )
        self._finish_request(refused)

    def _finish_request(self, refused: int) -> None:
        counts = self._counts
        counts.refused += refused
        counts.waiting_since = None
        if refused < len(self._held):
            counts.last_send = counts.clock()
            # Count all lines, because the receiver does not report which lines it refused.
            counts.lines.update(entry.source.component for entry in self._held)
        for entry in self._held:
            self._sent.moved(entry.source.key, entry.line.time)
            self.lines.task_done()
        self._held.clear()
        self._sent.write()

    def _say(self, problem: str) -> None:
        if problem != self._said:
            text = f"{self._receiver.endpoint}: {problem or 'the receiver accepts lines again'}"
            say("error" if problem else "info", text)
        self._said = problem
