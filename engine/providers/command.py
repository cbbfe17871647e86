"""Run commands on remote hosts with the local `ssh`.

This module implements `command:remote:Command` of Pulumi's command provider (1.2), with the same
inputs, outputs and reasons to run a command again. Unlike Pulumi's provider, it requires the host's
key, and logs in only with a private key.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.errors import Cancelled, CheckError, EngineError
from engine.folders import temporary_folder
from engine.providers import Diff, Operation, Resource
from engine.values import UNKNOWN, Properties, Unknown, changed_paths, format_path

Inputs: TypeAlias = Mapping[str, Any]

TYPE: Final = "command:remote:Command"
_CONNECTION: Final = (
    *("dialErrorLimit", "host", "hostKey", "perDialTimeout", "port", "privateKey", "user"),
)
_INPUTS: Final = (
    *("addPreviousOutputInEnv", "connection", "create", "delete", "environment", "logging"),
    *("stdin", "triggers", "update"),
)
_OUTPUTS: Final = ("stderr", "stdout")
_ALIAS: Final = "machine"
"""The host's name in known_hosts, for any address and port."""
_POLL: Final = 0.2
"""Seconds between two checks whether the user has stopped the run."""
_GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL to ssh."""
_LINES: Final = 3
"""Number of lines at the end of the output that an error shows."""


class CommandProvider:
    """The provider has no config: each command has its own connection."""

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Return the inputs unchanged. Raises CheckError that names an invalid input."""
        _require(resource_type)
        _check_names(news, _INPUTS, "")
        connection = news.get("connection")
        if isinstance(connection, Unknown):
            return dict(news)
        if not isinstance(connection, dict):
            raise CheckError("connection", "is required; set host, hostKey and privateKey")
        _check_names(connection, _CONNECTION, "connection.")
        for name in ("host", "hostKey", "privateKey"):
            if connection.get(name) is None:
                raise CheckError(
                    f"connection.{name}",
                    "is required; set host, hostKey and privateKey (this engine verifies host keys"
                    " and logs in only with a private key)",
                )
        return dict(news)

    def diff(self, old: Resource, news: Properties) -> Diff:
        """Report each changed input. Any changed input runs a command again.

        A changed trigger replaces the resource. If the input `update` is set, a changed trigger
        only updates the resource. Pulumi's provider does the same (source: its documentation of
        `triggers`).
        """
        paths = [path for path in changed_paths(old.inputs, news) if path[0] in _INPUTS]
        changed = tuple(map(format_path, paths))
        if news.get("update") is not None:
            return Diff(changed)
        triggers = [path for path in paths if path[0] == "triggers"]
        return Diff(changed, tuple(map(format_path, triggers)))

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        _require(resource_type)
        outputs = {**inputs, **_ran(inputs, "create", op)}
        return uuid.uuid4().hex[:16], outputs

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """Run `update`, or `create` if `update` is not set."""
        kept = {name: value for name, value in old.outputs.items() if name in _OUTPUTS}
        name = "create" if news.get("update") is None else "update"
        return {**news, **kept, **_ran(news, name, op, kept)}

    def delete(self, old: Resource, op: Operation) -> None:
        _ran(old.inputs, "delete", op, old.outputs)

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Return the stored values, because nothing shows whether an interrupted command ran."""
        if outputs is None:
            raise EngineError(
                f"{resource_type}: cannot be imported, because the result of a command exists only"
                " in the state; remove the import or the get() call"
            )
        return resource_id, inputs, outputs

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Return the inputs; the output of a command is unknown."""
        return {**inputs, **dict.fromkeys(_OUTPUTS, UNKNOWN)}

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Return the connection and the outputs, which may contain any secret."""
        return frozenset({"connection", *_OUTPUTS})


def _require(resource_type: str) -> None:
    if resource_type != TYPE:
        raise EngineError(
            f"{resource_type}: type not supported by this engine (supported: {TYPE}); deploy this"
            " stack with the `pulumi` command"
        )


def _check_names(given: Inputs, known: Sequence[str], prefix: str) -> None:
    for name, value in given.items():
        if name not in known and not name.startswith("__") and value is not None:
            raise CheckError(
                f"{prefix}{name}",
                f"input not supported by this engine (supported: {', '.join(known)}); remove it",
            )


# ---------------------------------------------------------------------------------------------
# Running


@dataclass(frozen=True)
class _Result:
    code: int
    stdout: str
    stderr: str


def _ran(inputs: Inputs, which: str, op: Operation, previous: Inputs | None = None) -> Properties:
    """Run the command in the input `which`; return its output without the last newline.

    Return an empty dict if this input is not set.
    """
    command = inputs.get(which)
    if command is None:
        return {}
    connection = inputs["connection"]
    environment = {name: str(value) for name, value in (inputs.get("environment") or {}).items()}
    if previous and inputs.get("addPreviousOutputInEnv") is not False:
        for name in _OUTPUTS:
            environment[f"PULUMI_COMMAND_{name.upper()}"] = str(previous.get(name) or "")
    with _ssh(connection, tuple(environment)) as ssh:
        result = _run([*ssh, command], inputs.get("stdin") or "", environment, op)
    if result.code != 0:
        raise EngineError(f"{_place(connection)}: {_reason(result)}")
    return {name: getattr(result, name).removesuffix("\n") for name in _OUTPUTS}


@contextmanager
def _ssh(connection: Inputs, sent: Sequence[str]) -> Iterator[list[str]]:
    """Yield the ssh command line without the remote command; then delete its temporary files.

    The options on this command line make ssh ignore the user's own settings and ask no questions
    (ssh_config(5)).
    """
    with temporary_folder() as folder:
        key, known = folder / "key", folder / "known_hosts"
        key.touch(mode=0o600)
        key.write_text(connection["privateKey"].rstrip("\n") + "\n")
        known.write_text(f"{_ALIAS} {connection['hostKey']}\n")
        options = {
            "BatchMode": "yes",
            "CheckHostIP": "no",
            "ConnectTimeout": connection.get("perDialTimeout") or 15,
            "ConnectionAttempts": max(1, int(connection.get("dialErrorLimit") or 10)),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": _ALIAS,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "IdentityFile": key,
            "LogLevel": "ERROR",
            # If the host stops answering, ssh exits within a minute.
            "ServerAliveInterval": 15,
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": known,
            **({"SendEnv": " ".join(sent)} if sent else {}),
        }
        yield [
            *("ssh", "-F", "/dev/null", "-T"),
            *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
            *("-p", str(connection.get("port") or 22)),
            *("-l", connection.get("user") or "root"),
            *("--", connection["host"]),
        ]


def _run(
    command: Sequence[str], stdin: str, environment: Mapping[str, str], op: Operation
) -> _Result:
    """Run a command to its end, unless the user stops it. Raises Cancelled, EngineError."""
    deadline = time.monotonic() + op.timeout if op.timeout else None
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise EngineError(
            f"cannot start ssh: {error.strerror}; install OpenSSH's client on this host"
        ) from error
    # Use a thread: `communicate` with a timeout loses input that it has not written yet.
    with process, ThreadPoolExecutor(1) as pool:
        output = pool.submit(process.communicate, stdin)
        while True:
            with suppress(TimeoutError):
                stdout, stderr = output.result(_POLL)
                return _Result(process.returncode, stdout, stderr)
            late = deadline is not None and time.monotonic() > deadline
            if late or op.cancelled.is_set():
                _end(process)
            if op.cancelled.is_set():
                raise Cancelled
            if late:
                raise EngineError(
                    f"the command timed out after {op.timeout:g} s; increase customTimeouts of this"
                    " resource"
                )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()


def _place(connection: Inputs) -> str:
    return f"{connection.get('user') or 'root'}@{connection['host']}"


def _reason(result: _Result) -> str:
    """Describe a failure in one line: the last lines of the output, and the exit code."""
    printed = [line.strip() for line in (result.stderr or result.stdout).splitlines()]
    last = [line for line in printed if line][-_LINES:]
    outcome = "ssh failed" if result.code == 255 else f"exit code {result.code}"
    return "; ".join([*last, outcome]) if last else outcome
