"""Run the operations of a deployment in threads, write the state, and report to the display."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.errors import Cancelled, EngineError
from engine.events import Display, Step
from engine.journal import Journal
from engine.planning import Op, Settings
from engine.providers import Operation, Resource
from engine.state import Snapshot, StoredResource
from engine.urns import is_default_provider, is_provider, name_of
from engine.values import plain_properties

T = TypeVar("T")

_QUICK_CALLS: Final = 8  # simultaneous quick calls, such as checks and diffs
_TIMEOUT_OF: Final = {"creating": "create", "updating": "update", "deleting": "delete"}


class Stopped(Exception):  # noqa: N818 - not an error: the reason has been shown
    """The deployment has stopped."""


@dataclass(frozen=True)
class Options:
    """Options of a deployment. ``parallel`` is the maximum number of simultaneous operations."""

    project: str
    stack: str
    preview: bool
    parallel: int
    config: Mapping[str, str]
    """The stack's decrypted config by ``<namespace>:<name>``."""
    settings: Settings
    refresh: bool = False
    """Whether to create resources again that are in the state but no longer exist."""


class Work:
    """The operations of one run. Call its methods only in the event loop's thread.

    The state is written before and after each operation. The next run therefore knows which
    resources exist, even if this run is killed.
    """

    def __init__(
        self,
        options: Options,
        snapshot: Snapshot,
        save: Callable[[Snapshot], None],
        display: Display,
    ) -> None:
        self.options = options
        self.journal = Journal(snapshot)
        self.display = display
        self.counts: Counter[Op] = Counter()
        self.failed = False
        self.failures = 0
        self._begun: dict[str, Step] = {}
        self._save_snapshot = save
        self._slots = asyncio.Semaphore(options.parallel)
        self._operations = ThreadPoolExecutor(options.parallel, thread_name_prefix="operation")
        self._quick = ThreadPoolExecutor(_QUICK_CALLS, thread_name_prefix="plan")
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether the user has stopped the run."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask running operations to stop, and start no new ones."""
        self._cancelled.set()

    def go_on(self) -> None:
        """Raise Stopped if the run has failed or the user has stopped it."""
        if self.failed or self.cancelled:
            raise Stopped

    def close(self) -> None:
        """Release the threads without waiting: a thread that hangs must not delay the exit."""
        self._operations.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)

    def save(self) -> None:
        """Write the state, unless this is a preview."""
        if not self.options.preview:
            self._save_snapshot(self.journal.snapshot())

    async def ask(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function of a provider that returns quickly, such as a check.

        Raises EngineError.
        """
        return await _in_thread(self._quick, function, *arguments)

    async def run(
        self, kind: str, step: Step, resource: StoredResource, call: Callable[[Operation], T]
    ) -> T:
        """Run an operation. The state lists the operation until it ends.

        The caller records and saves the outcome. Raises EngineError and Stopped.
        """
        if not resource.custom or is_provider(resource.type):
            result = call(
                Operation()
            )  # no call of a provider: the resource exists only in the state
            self.done(step, 0.0)
            return result
        async with self._slots:
            self.go_on()
            self.journal.begin(kind, resource)
            self.save()
            self._begun[step.urn] = step
            self.display.started(step)
            begun = time.monotonic()
            try:
                result = await _in_thread(self._operations, call, self._operation(kind, resource))
            except EngineError:
                self.journal.end(resource)
                self.save()
                raise
            self.journal.end(resource)
            self.done(step, time.monotonic() - begun)
            return result

    def _operation(self, kind: str, resource: StoredResource) -> Operation:
        loop = asyncio.get_running_loop()

        def status(line: str) -> None:
            loop.call_soon_threadsafe(self.display.status, resource.urn, line)

        return Operation(
            timeout=resource.custom_timeouts.get(_TIMEOUT_OF[kind], 0.0),
            cancelled=self._cancelled,
            status=status,
        )

    def done(self, step: Step, seconds: float) -> None:
        """Count and show a finished step; in a preview, a planned step."""
        if is_default_provider(step.urn):
            return  # internal to the engine
        if step.counts:
            self.counts[step.op] += 1
        if self.options.preview:
            self.display.known(step)
        else:
            self.display.finished(step, seconds)

    def report(self, step: Step, error: EngineError) -> None:
        """Show a failure, and let no more operations start."""
        step = self._begun.get(step.urn, step)
        if self.cancelled and isinstance(error, Cancelled):
            self.display.failed(step, "cancelled")
        else:
            self.failed = True
            self.failures += 1
            self.display.failed(step, str(error))


async def _in_thread(
    executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: object
) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(describe_bug(error)) from error


def describe_bug(error: BaseException) -> str:
    """Return one line for an unexpected exception, with the place where it was raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
    text = " ".join(str(error).split())
    return (
        f"unexpected error in the engine: {type(error).__name__}: {text}{where}; this is a bug:"
        " please report it with this line"
    )


def as_providers_see(old: StoredResource) -> Resource:
    """Return a stored resource without secret markers."""
    return Resource(
        old.urn,
        old.type,
        name_of(old.urn),
        old.id or None,
        plain_properties(old.inputs),
        plain_properties(old.outputs),
    )
