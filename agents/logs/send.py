"""Send lines to a receiver of OpenTelemetry's protocol, each until it is accepted or refused."""

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
"""Limit of waiting lines, at which reading stops."""
LINES = 1000
"""Limit of lines in a request."""
CHARACTERS = 1024 * 1024
"""Characters after which a request gets no more lines: receivers limit the size of requests."""
GATHER = 1.0
"""Seconds that a request waits for further lines."""
PAUSE = 1.0
"""Seconds after which a request is tried again; doubled with each further attempt."""
LONGEST_PAUSE = 15.0
LAST = 5.0
"""Seconds to send the remaining lines when the process must end."""


class NotTakenError(Exception):
    """A request that may be accepted later; one line.

    `after` is the number of seconds to wait, if the receiver states one.
    """

    def __init__(self, said: str, after: float = 0) -> None:
        self.after = after
        super().__init__(said)


class RefusedError(Exception):
    """A request that is refused, however often it is tried; one line."""


@dataclass(frozen=True)
class Receiver:
    """Receiver of the lines."""

    endpoint: str
    """Address without the protocol's own path."""
    headers: Path | None = None
    """Folder with one file per header, named after it. Files are read for each request: the kubelet
    renews them."""
    verify: ssl.SSLContext | bool = True

    async def post(self, http: httpx.AsyncClient, body: bytes) -> tuple[int, str]:
        """Post a request; return how many of its lines were refused nevertheless, and why.

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
    """Read request headers from a Secret's files. Raises `NotTakenError`, which shows no value."""
    if folder is None:
        return {}
    try:
        # Names that begin with a dot are the kubelet's own.
        files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        found = {path.name: path.read_bytes().strip() for path in files}
    except OSError as error:
        raise NotTakenError(f"headers_secret: {error}") from error
    for name, value in found.items():
        if not all(b" "[0] <= byte <= b"~"[0] for byte in value):
            raise NotTakenError(f"headers_secret: {name}: expected one line of printable ASCII")
    return {name: value.decode() for name, value in found.items()}


def _seconds(retry_after: str) -> float:
    """Parse Retry-After (RFC 9110, section 10.2.3); a date is ignored."""
    return min(float(retry_after), LONGEST_PAUSE) if retry_after.isdecimal() else 0


class Sender:
    """Sends the entries of the queue `lines`, which has room for `ROOM` of them."""

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
        """Entries that are being sent."""
        self._said = ""

    async def run(self) -> None:
        """Send until cancelled. Raises `OSError` if the progress cannot be written."""
        while True:
            await self._gather()
            await self._deliver()

    async def finish(self) -> None:
        """Wait until `run` has sent everything, at most `LAST` seconds."""
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
        """Send the held entries until they are accepted or refused."""
        body, pause = otlp.request(self._held, self._cluster, self._namespace), PAUSE
        while True:
            try:
                refused, why = await self._receiver.post(self._http, body)
                break
            except NotTakenError as error:
                self._say(f"{error}; trying again")
                await asyncio.sleep(error.after or pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except RefusedError as error:
                refused, why = len(self._held), str(error)
                break
        self._say(f"the receiver refuses lines: {why}" if refused else "")
        self._is_over(refused)

    def _is_over(self, refused: int) -> None:
        counts = self._counts
        counts.refused += refused
        counts.waiting_since = None
        if refused < len(self._held):
            counts.last_send = counts.clock()
            # If only some lines were refused, the receiver does not report which: count all.
            counts.lines.update(entry.source.component for entry in self._held)
        for entry in self._held:
            self._sent.moved(entry.source.key, entry.line.time)
            self.lines.task_done()
        self._held.clear()
        self._sent.write()

    def _say(self, problem: str) -> None:
        if problem != self._said:
            text = f"{self._receiver.endpoint}: {problem or 'accepts lines again'}"
            say("error" if problem else "info", text)
        self._said = problem
