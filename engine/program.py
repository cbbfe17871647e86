"""Run the Pulumi program in a process that starts and ends with the engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

from engine.events import Display, Severity
from engine.project import Project
from engine.work import Options

_RUNNER: Final = Path(__file__).with_name("runner.py")
_STOPPED: Final = 3  # the runner's exit code if the deployment has stopped
_GRACE: Final = 3.0  # seconds between SIGTERM and SIGKILL
_LONGEST_LINE: Final = 1024 * 1024


class Program:
    """One run of the program.

    The process starts early, so that it imports the SDK while the engine reads the state.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ended_by_us = False

    @classmethod
    async def start(cls, project: Project) -> Program:
        """Start the program's Python; it imports the SDK and waits for its settings."""
        process = await asyncio.create_subprocess_exec(
            str(project.interpreter),
            str(_RUNNER),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=project.root,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # Only the engine handles Ctrl-C: it ends the program cleanly.
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        return cls(process)

    async def run(
        self,
        project: Project,
        options: Options,
        secret_keys: list[str],
        address: str,
        display: Display,
    ) -> bool:
        """Run the program to its end and show its output. Return whether it succeeded."""
        settings = {
            "address": address,
            "project": options.project,
            "stack": options.stack,
            "organization": "organization",
            "parallel": options.parallel,
            "dry_run": options.preview,
            "config": dict(options.config),
            "secret_keys": secret_keys,
            "main": str(project.main),
            "root": str(project.root),
        }
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None  # noqa: S101 - all three are pipes
        assert stdout is not None  # noqa: S101
        assert stderr is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(json.dumps(settings).encode() + b"\n")
            await stdin.drain()
        await asyncio.gather(show(stdout, display), show(stderr, display))
        code = await self._process.wait()
        if code not in (0, 1, _STOPPED) and not self._ended_by_us:
            display.message(
                Severity.ERROR, f"the Pulumi program {_ended(code)}; read its output above"
            )
        return code == 0

    async def stop(self) -> None:
        """End the process and its children with SIGTERM, and after three seconds with SIGKILL."""
        if self._process.returncode is not None:
            return
        self._ended_by_us = True
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


async def show(stream: asyncio.StreamReader, display: Display) -> None:
    """Show the output of a process line by line, until it ends."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # skip a line longer than _LONGEST_LINE
            continue
        if not line:
            return
        text = line.decode(errors="replace").rstrip()
        if text:
            display.message(Severity.OUTPUT, text)
