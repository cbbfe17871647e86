"""Run `up`, `preview` or `destroy` on a stack, from the lock to the history entry."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.backend import Backend
from engine.config import StackFile
from engine.deployment import Deployment
from engine.display import Report, Result
from engine.errors import EngineError
from engine.events import Severity
from engine.lock import locked
from engine.planning import Op
from engine.policies import Policies, Verdict
from engine.program import Program
from engine.project import PackProject, Project
from engine.secrets import PassphraseCrypter, passphrase_from_environment
from engine.state import Checkpoint, Sealer, Snapshot
from engine.work import Options, Stopped, Work

INTERRUPTED: Final = 130
"""Exit code of a run that the user stopped, as in a shell."""


@dataclass(frozen=True)
class Stack:
    """A stack: its state and its config, with decrypted secrets."""

    project: Project
    name: str
    backend: Backend
    crypter: PassphraseCrypter | None
    snapshot: Snapshot
    config: dict[str, str]
    secret_keys: list[str]


def open_stack(project: Project, name: str, *, writes: bool) -> Stack:
    """Read a stack. ``writes`` says whether the caller will write the state: needs a passphrase.

    Raises EngineError, WrongPassphrase.
    """
    backend = Backend(project.state_directory(), project.name, name)
    checkpoint = backend.read()
    file = project.read_stack(name)
    crypter, config_crypter = _crypters(checkpoint, file, writes)
    values, secret_keys = file.decrypted(config_crypter)
    snapshot = checkpoint.open(crypter) if checkpoint else Snapshot()
    return Stack(project, name, backend, crypter, snapshot, values, secret_keys)


def _crypters(
    checkpoint: Checkpoint | None, file: StackFile, writes: bool
) -> tuple[PassphraseCrypter | None, PassphraseCrypter | None]:
    """Return the crypters of the state and of the config: one crypter if their salts are equal."""
    state_salt = checkpoint.salt if checkpoint else None
    if not (state_salt or writes or file.has_secrets):
        return None, None
    passphrase = passphrase_from_environment()
    if writes and not state_salt:
        state_salt = file.encryption_salt
    config_salt = file.encryption_salt if file.has_secrets else None
    salts = sorted({salt for salt in (state_salt, config_salt) if salt})
    with ThreadPoolExecutor(2) as pool:  # each key takes a few tenths of a second
        crypters = pool.map(lambda salt: PassphraseCrypter.from_state(passphrase, salt), salts)
        opened = dict(zip(salts, crypters, strict=True))
    state = opened.get(state_salt or "")
    if state is None and writes:
        state = PassphraseCrypter.new(passphrase)
    return state, opened.get(config_salt or "")


def encrypt(project: Project, name: str, text: str) -> str:
    """Return a text encrypted for the config of a stack.

    A stack file without a salt gets one. Raises EngineError and WrongPassphrase.
    """
    file = project.read_stack(name)
    if not file.path.exists():
        raise EngineError(
            f"stack {name!r}: the stack file {file.path.name} does not exist; create this"
            " file, or correct the name of the stack"
        )
    passphrase = passphrase_from_environment()
    if file.encryption_salt:
        return PassphraseCrypter.from_state(passphrase, file.encryption_salt).encrypt(text)
    checkpoint = Backend(project.state_directory(), project.name, name).read()
    if checkpoint and checkpoint.salt:  # one passphrase for the state and the config
        crypter = PassphraseCrypter.from_state(passphrase, checkpoint.salt)
    else:
        crypter = PassphraseCrypter.new(passphrase)
    end = "" if file.path.read_text().endswith("\n") else "\n"
    with file.path.open("a") as writing:
        writing.write(f"{end}encryptionsalt: {crypter.state}\n")
    return crypter.encrypt(text)


@dataclass(frozen=True)
class Request:
    """A user's request. ``parallel`` is the maximum number of simultaneous operations."""

    kind: str  # "update" or "destroy", as in the history
    preview: bool
    parallel: int
    expect_no_changes: bool = False
    packs: tuple[PackProject, ...] = ()
    """Policy packs that check an update."""
    refresh: bool = False
    """Whether to create resources again that are in the state but no longer exist."""


def run(project: Project, name: str, request: Request, report: Report) -> int:
    """Deploy, show progress and return the exit code.

    Raises EngineError only if the run cannot start. The display shows later errors.
    """
    with contextlib.ExitStack() as held:
        lock: Path | None = None
        if not request.preview:
            backend = Backend(project.state_directory(), project.name, name)
            lock = held.enter_context(locked(backend.locks))
        # A program and its providers may use paths relative to the project.
        held.enter_context(contextlib.chdir(project.root))
        return asyncio.run(_run(project, name, request, report, lock))


async def _run(
    project: Project, name: str, request: Request, report: Report, lock: Path | None
) -> int:
    begun, started = time.monotonic(), time.time()
    program = await Program.start(project) if request.kind == "update" else None
    try:
        stack = await asyncio.to_thread(open_stack, project, name, writes=not request.preview)
        options = Options(
            project.name,
            name,
            request.preview,
            request.parallel,
            stack.config,
            project.settings,
            request.refresh,
        )
        work = Work(options, stack.snapshot, _saving(stack), report)
        with report, _signals(work, lock, program, report):
            verdicts = await _carried_out(work, program, stack, request)
            result = Result(
                succeeded=not (work.failed or work.cancelled),
                cancelled=work.cancelled,
                preview=request.preview,
                counts=work.counts,
                failures=work.failures,
                outputs=work.journal.snapshot().outputs if program else None,
                outputs_before=stack.snapshot.outputs,
                seconds=time.monotonic() - begun,
                verdicts=verdicts,
            )
            report.finish(result)
        work.close()
    finally:
        if program is not None:
            await program.stop()
    if not request.preview:
        counts = {op.value: count for op, count in work.counts.items()}
        stack.backend.add_history(request.kind, started, counts, result.succeeded)
    return _exit_code(result, request)


def _saving(stack: Stack) -> Callable[[Snapshot], None]:
    sealer = Sealer(stack.crypter)
    return lambda snapshot: stack.backend.write(sealer.deployment(snapshot))


async def _carried_out(
    work: Work, program: Program | None, stack: Stack, request: Request
) -> tuple[Verdict, ...]:
    """Run the deployment and return the policies' verdicts. Show and record failures."""
    policies = Policies()
    deployment = Deployment(work, policies)
    try:
        async with contextlib.AsyncExitStack() as held:
            if request.packs:
                # Import on demand: the gRPC protocol takes a while to load.
                from engine.packs import started

                packs = started(request.packs, work.options, stack.secret_keys, work.display)
                policies.packs.extend(await held.enter_async_context(packs))
            await deployment.recover()
            if program is None:
                await deployment.destroy()
            else:
                await _deploy(deployment, work, program, stack)
    except Stopped:
        pass  # the reason has been shown
    except EngineError as error:
        deployment.fail(str(error))
    return policies.verdicts


def _exit_code(result: Result, request: Request) -> int:
    if result.cancelled:
        return INTERRUPTED
    if not result.succeeded:
        return 1
    changed = sum(n for op, n in result.counts.items() if op not in (Op.SAME, Op.READ))
    if request.expect_no_changes and changed:
        print(
            f"error: --expect-no-changes: {changed} resources change; review the changes"
            " above, or omit this option, to accept them",
            file=sys.stderr,
        )
        return 1
    return 0


async def _deploy(deployment: Deployment, work: Work, program: Program, stack: Stack) -> None:
    # Import while the program's process starts: the gRPC protocol takes a while to load.
    from engine.host import Engine, Monitor, served

    monitor = Monitor(deployment, work.options, work.display)
    async with served(monitor, Engine(work.display)) as address:
        ran = await program.run(
            stack.project, work.options, stack.secret_keys, address, work.display
        )
        await monitor.idle()
    if not ran or not monitor.finished:
        deployment.fail()
    work.save()
    work.go_on()
    await deployment.finish()
    work.go_on()
    await deployment.judge()


@contextmanager
def _signals(
    work: Work, lock: Path | None, program: Program | None, report: Report
) -> Iterator[None]:
    """On SIGINT, SIGTERM or SIGHUP, end the run cleanly; on a second signal, end it at once."""
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def stop() -> None:
        if work.cancelled:
            _leave_at_once(report, lock)
        work.cancel()
        report.message(
            Severity.WARNING,
            "stopping: running operations are cancelled; press Ctrl-C again to exit immediately",
        )
        if program is not None:
            ending.append(asyncio.ensure_future(program.stop()))

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _leave_at_once(report: Report, lock: Path | None) -> None:
    """Exit immediately. The state lists the running operations, so the next run checks them."""
    report.__exit__(None, None, None)
    print(
        "stopped immediately; run the command again: the next run checks the operations"
        " that were interrupted",
        file=sys.stderr,
    )
    sys.stdout.flush()
    if lock is not None:
        lock.unlink(missing_ok=True)
    os._exit(INTERRUPTED)
