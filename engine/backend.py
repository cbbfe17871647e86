"""Store the state in the layout of Pulumi's file backend, so that Pulumi's engine can use it.

``<dir>/.pulumi/stacks/<project>/<stack>.json`` is the checkpoint, ``.json.bak`` the previous one.
``history/`` has one entry per update. ``meta.yaml`` contains the version of the layout.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from engine.errors import EngineError
from engine.state import VERSION, Checkpoint

_LAYOUT: Final = 1
_ORGANIZATION: Final = "organization"  # Pulumi's file backend has only this organization
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Backend:
    """The stored state of one stack."""

    def __init__(self, directory: Path, project: str, stack: str) -> None:
        for kind, name in (("project", project), ("stack", stack)):
            if not _NAME.fullmatch(name):
                raise EngineError(
                    f"{kind} {name!r}: invalid name; use at most 100 letters, digits, '.', '-' and"
                    " '_', and begin with a letter or a digit"
                )
        self.root: Final = directory / ".pulumi"
        self.project: Final = project
        self.stack: Final = stack
        self.file: Final = self.root / "stacks" / project / f"{stack}.json"
        self.locks: Final = self.root / "locks" / _ORGANIZATION / project / stack

    def read(self) -> Checkpoint | None:
        """Return the state, or None if the stack has no state yet. Raises EngineError."""
        self._check_layout()
        try:
            document = json.loads(self.file.read_text())
        except FileNotFoundError:
            for suffix in (".gz", ".zst"):
                if self.file.with_name(self.file.name + suffix).exists():
                    raise EngineError(
                        f"{self.file}{suffix}: this engine cannot read compressed state; unset"
                        " PULUMI_SELF_MANAGED_STATE_GZIP, then run `pulumi stack export --file"
                        " s.json` and `pulumi stack import --file s.json`"
                    ) from None
            return None
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{self.file}: cannot be read: {error}; fix the file, or restore the previous state"
                f" from {self.file.name}.bak"
            ) from error
        return self._checkpoint(document)

    def _checkpoint(self, document: Any) -> Checkpoint:
        version = document.get("version") if isinstance(document, dict) else None
        if version is None:
            raise EngineError(
                f"{self.file}: is not a state file of Pulumi: expected a JSON object with the key"
                f" `version`; restore the previous state from {self.file.name}.bak"
            )
        if version != VERSION:
            raise EngineError(
                f"{self.file}: version {version!r} of the state's format is not supported (expected"
                f" {VERSION}); deploy this stack with the `pulumi` command"
            )
        if not isinstance(document.get("checkpoint"), dict):
            remedy = f"restore the previous state from {self.file.name}.bak"
            if "deployment" in document:
                remedy += (
                    "; this file is the output of `stack export`: to use it, move it to another"
                    " folder, and import it from there with `pulumi stack import --file`"
                )
            raise EngineError(f"{self.file}: the state has no key `checkpoint`; {remedy}")
        deployment = document["checkpoint"].get("latest") or {}
        provider = deployment.get("secrets_providers") or {}
        if provider.get("type") not in (None, "", "passphrase"):
            raise EngineError(
                f"{self.file}: secrets provider {provider['type']!r} is not supported; change it"
                " with `pulumi stack change-secrets-provider passphrase`"
            )
        return Checkpoint((provider.get("state") or {}).get("salt"), deployment)

    def _check_layout(self) -> None:
        meta = self.root / "meta.yaml"
        if not meta.exists():
            return
        try:
            content = yaml.safe_load(meta.read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            raise EngineError(
                f"{meta}: cannot be read: {reason}; restore it from a backup, or write the line"
                f" `version: {_LAYOUT}` into it"
            ) from error
        version = content.get("version") if isinstance(content, dict) else content
        if version != _LAYOUT:
            raise EngineError(
                f"{meta}: version {version!r} of the folder's layout is not supported (expected"
                f" {_LAYOUT}); run `pulumi state upgrade`"
            )

    def write(self, deployment: Mapping[str, Any]) -> None:
        """Store the state atomically: another process reads either the old or the new state.

        ``deployment`` is the state as JSON, in the format of `pulumi stack export`.
        """
        meta = self.root / "meta.yaml"
        if not meta.exists():
            write_atomically(meta, f"version: {_LAYOUT}\n")
        checkpoint = {
            "stack": f"{_ORGANIZATION}/{self.project}/{self.stack}",
            "latest": deployment,
        }
        text = json.dumps({"version": VERSION, "checkpoint": checkpoint}, separators=(",", ":"))
        if self.file.exists():
            backup = self.file.with_name(self.file.name + ".bak")
            write_atomically(backup, self.file.read_text())
        write_atomically(self.file, text)

    def add_history(
        self, kind: str, started: float, changes: Mapping[str, int], succeeded: bool
    ) -> None:
        """Record an update; ``started`` is in seconds since the epoch."""
        directory = self.root / "history" / self.project / self.stack
        prefix = f"{self.stack}-{time.time_ns()}"
        entry = {
            "kind": kind,
            "startTime": int(started),
            "message": "",
            "environment": {"exec.kind": "engine"},
            "config": {},
            "version": 0,
            "result": "succeeded" if succeeded else "failed",
            "endTime": int(time.time()),
            "resourceChanges": dict(changes),
        }
        write_atomically(directory / f"{prefix}.history.json", json.dumps(entry))
        if self.file.exists():
            write_atomically(directory / f"{prefix}.checkpoint.json", self.file.read_text())


def write_atomically(path: Path, text: str) -> None:
    """Write a file that only its owner can read. A crash leaves either the old or the new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
