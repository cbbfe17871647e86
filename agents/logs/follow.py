"""Follow the logs of all containers of the stack, across restarts of containers and this agent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from agents import labels
from agents.kubernetes import KubernetesError
from agents.logs.lines import Line, Severity, Splitter, read
from agents.logs.metrics import Counts
from agents.logs.otlp import Entry, Source
from agents.logs.pods import Api, Pod, Pods
from agents.logs.sent import Sent
from agents.say import say

PAUSE = 1.0
"""After the API server's answer with a log ends, the agent waits this many seconds before it
requests the log again. The wait ends early if the container stops or restarts, or if its pod is
deleted. The wait doubles after each answer that has no new line."""
LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Run:
    """Run of a container, from its start to its end."""

    id: str
    restarts: int
    is_running: bool


@dataclass
class Followed:
    """Container whose log the agent follows, and how far the agent has read the log."""

    source: Source
    run: Run
    """Run of the container in the last status from Kubernetes."""
    since: int
    """Earliest time of unread lines."""
    last: Line | None = None
    """Last line that was read."""
    is_whole: bool = False
    """Whether the agent has read the log of the run to its end. If so, a request ended without an
    error, and no later request has found a new line."""
    is_gone: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def becomes(self, run: Run) -> None:
        if run != self.run:
            self.run = run
            self.changed.set()

    def goes(self) -> None:
        self.is_gone = True
        self.changed.set()


class Following:
    """Passes each line with at least the severity `level` to the function `take`. `take` may
    wait."""

    def __init__(
        self,
        api: Api,
        take: Callable[[Entry], Awaitable[None]],
        level: Severity,
        sent: Sent,
        counts: Counts,
    ) -> None:
        self._api = api
        self._take = take
        self._level = level
        self._sent = sent
        self._counts = counts
        self._followed: dict[str, Followed] = {}
        self._said = ""

    async def run(self) -> None:
        """Follow the logs until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            pause = PAUSE
            while True:
                try:
                    pods = await self._api.pods()
                    self._say("")
                    self._all(pods, group)
                    pause = PAUSE
                    async for pod, is_there in self._api.watch(pods.metadata.resource_version):
                        if is_there:
                            self._see(pod, group)
                        else:
                            self._goes({pod.metadata.uid})
                except KubernetesError as error:
                    self._say(str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            say(
                "error" if problem else "info", problem or "Kubernetes again sends the list of pods"
            )
        self._said = problem

    # --- Containers ------------------------------------------------------------------------------

    def _all(self, pods: Pods, group: asyncio.TaskGroup) -> None:
        there = {pod.metadata.uid for pod in pods.items}
        self._sent.keep(there)
        self._goes({one.source.uid for one in self._followed.values()} - there)
        for pod in pods.items:
            self._see(pod, group)

    def _see(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        for status in pod.containers():
            run = Run(status.container_id, status.restart_count, status.state.running is not None)
            source = Source(
                pod.metadata.uid,
                pod.metadata.name,
                status.name,
                pod.metadata.labels.get(labels.COMPONENT, ""),
                pod.spec.node_name,
            )
            if followed := self._followed.get(source.key):
                followed.becomes(run)
            else:
                one = Followed(source, run, self._sent.since(source.key))
                self._followed[source.key] = one
                self._counts.containers = len(self._followed)
                group.create_task(self._follow(one))

    def _goes(self, uids: set[str]) -> None:
        for one in self._followed.values():
            if one.source.uid in uids:
                one.goes()

    # --- One container ---------------------------------------------------------------------------

    async def _follow(self, one: Followed) -> None:
        """Follow a container until its pod ends.

        The API server's answer may end because the connection broke, although the container still
        runs. So a run's log is complete only if it was requested after the end of the run.
        """
        pause, begun, ended = PAUSE, "", None
        while not (one.is_gone and one.is_whole):
            one.changed.clear()
            run, had = one.run, one.last
            try:
                if run.id != begun:
                    if run.restarts and ended != begun:
                        await self._read_previous(one)
                    begun, one.is_whole = run.id, False
                await self._read(one)
                if not run.is_running:
                    ended = run.id
            except KubernetesError:
                # Do not report the error: the watch of the pods shows whether the pod, its machine
                # or the API server is gone.
                if one.is_gone:
                    self._counts.cut += 1
                    break
            pause = PAUSE if one.last is not had else min(2 * pause, LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if ended == run.id else pause):
                    await one.changed.wait()
        del self._followed[one.source.key]
        self._counts.containers = len(self._followed)

    async def _read_previous(self, one: Followed) -> None:
        """Read the rest of the previous run. Raises `KubernetesError`."""
        try:
            await self._read(one, previous=True)
        except KubernetesError as error:
            # Kubernetes no longer has this log: the container has restarted several times, or the
            # log was removed.
            if error.status != HTTPStatus.BAD_REQUEST:
                raise

    async def _read(self, one: Followed, *, previous: bool = False) -> None:
        """Pass new lines to `take`. Raises `KubernetesError`."""
        source, is_new = one.source, False
        asked = self._api.log(source.pod, source.container, one.since, previous=previous)
        async for raw in _lines(asked):
            if (line := read(raw)) is None:
                continue
            # The answer starts at a whole second, so it repeats lines that were read before. All
            # lines after the last known line are new.
            is_new = is_new or (line.time >= one.since and line != one.last)
            if is_new:
                await self._hand_on(one, line)
        one.is_whole = True

    async def _hand_on(self, one: Followed, line: Line) -> None:
        one.is_whole = False
        if line.severity >= self._level:
            await self._take(Entry(one.source, line))
        one.since, one.last = line.time, line


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, and the incomplete line at its end."""
    splitter = Splitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line
    yield splitter.rest()
