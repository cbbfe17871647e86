"""Show the progress of a run on standard error: its phases and their durations."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.status import Status


@dataclass
class Progress:
    """Phases with elapsed seconds: a spinner on a terminal, plain lines elsewhere.

    Phases may run in parallel threads.
    """

    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    phases: list[tuple[str, float]] = field(default_factory=list)
    """Name and duration in seconds of each finished phase."""
    _start: float = field(default_factory=time.monotonic)
    _running: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _status: Status | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show the phase when it begins (on a terminal) and when it ends."""
        began = time.monotonic()
        with self._lock:
            self._running.append(name)
            self._show()
        try:
            yield
        finally:
            took = time.monotonic() - began
            with self._lock:
                self._running.remove(name)
                self._show()
                if sys.exc_info()[0] is None:
                    self.phases.append((name, took))
                    self._line(f"{name} ({took:.1f} s)", "green")

    def note(self, text: str) -> None:
        with self._lock:
            self._line(text, "dim")

    def summary(self) -> None:
        """Print one line with the durations of all phases of at least 0.05 s."""
        times = ", ".join(f"{name} {took:.1f}" for name, took in self.phases if took >= 0.05)
        total = time.monotonic() - self._start
        with self._lock:
            self._line(f"{total:.1f} s in total" + (f": {times}" if times else ""), "bold")

    def _line(self, text: str, style: str) -> None:
        elapsed = time.monotonic() - self._start
        self.console.print(f"[{elapsed:6.1f} s] {text}", style=style, markup=False, soft_wrap=True)

    def _show(self) -> None:
        if not self.console.is_terminal:
            return
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._running:
            self._status = self.console.status(" · ".join(self._running))
            self._status.start()
