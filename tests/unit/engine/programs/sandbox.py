"""A project in a temporary directory, which the engine runs in this process."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.display import Result
from engine.events import Severity, Step
from engine.planning import Op
from engine.policies import Violation
from engine.project import PackProject, find_project
from engine.update import Request, run
from engine.values import Properties
from tests.unit.engine.programs.fake import World

PREAMBLE = """
import pulumi
from pulumi import ResourceOptions as Options


class Thing(pulumi.CustomResource):
    self: pulumi.Output[str]
    value: pulumi.Output[str]
    password: pulumi.Output[str]

    def __init__(self, name, opts=None, **inputs):
        outputs = {"self": None, "value": None, "password": None}
        super().__init__("test:index:Thing", name, {**outputs, **inputs}, opts)


class Group(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("tests:index:Group", name, None, opts)


"""


@dataclass
class Recorder:
    """Record the events of a deployment."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    seen: list[Step] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[Severity, str]] = field(default_factory=list)
    result: Result | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def _add(self, step: Step) -> None:
        self.seen.append(step)
        if step.op is not Op.SAME:
            self.steps.append((step.note or step.op.value, step.urn.split("::", 3)[3]))

    def known(self, step: Step) -> None:
        self._add(step)

    def started(self, step: Step) -> None:
        return None

    def status(self, urn: str, line: str) -> None:
        return None

    def finished(self, step: Step, seconds: float) -> None:
        self._add(step)

    def failed(self, step: Step, reason: str) -> None:
        self.failures[step.urn.split("::", 3)[3]] = reason

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        self.messages.append((severity, text))

    def finish(self, result: Result) -> None:
        self.result = result


@dataclass
class Outcome:
    """Result of a command."""

    code: int
    record: Recorder

    @property
    def steps(self) -> list[tuple[str, str]]:
        return self.record.steps

    @property
    def counts(self) -> dict[str, int]:
        assert self.record.result is not None
        return {op.value: n for op, n in self.record.result.counts.items() if op is not Op.SAME}

    @property
    def errors(self) -> list[str]:
        texts = [text for severity, text in self.record.messages if severity is Severity.ERROR]
        return [*self.record.failures.values(), *texts]

    @property
    def violations(self) -> list[Violation]:
        assert self.record.result is not None
        return [one for verdict in self.record.result.verdicts for one in verdict.violations]

    @property
    def outputs(self) -> Properties:
        assert self.record.result is not None
        return self.record.result.outputs or {}


@dataclass
class Sandbox:
    """A project and its stack ``dev``."""

    root: Path
    world: World
    packs: tuple[PackProject, ...] = ()
    """Policy packs of the deployment."""

    def write(self, program: str, preamble: str = PREAMBLE) -> None:
        (self.root / "__main__.py").write_text(preamble + textwrap.dedent(program))

    def config(self, text: str) -> None:
        (self.root / "Pulumi.dev.yaml").write_text(textwrap.dedent(text))

    def _run(
        self,
        kind: str,
        preview: bool,
        expect: bool = False,
        parallel: int = 8,
        refresh: bool = False,
    ) -> Outcome:
        record = Recorder()
        request = Request(kind, preview, parallel, expect, self.packs, refresh)
        code = run(find_project(self.root), "dev", request, record)
        return Outcome(code, record)

    def up(self, program: str | None = None, parallel: int = 8, refresh: bool = False) -> Outcome:
        if program is not None:
            self.write(program)
        return self._run("update", False, parallel=parallel, refresh=refresh)

    def preview(
        self, program: str | None = None, expect_no_changes: bool = False, refresh: bool = False
    ) -> Outcome:
        if program is not None:
            self.write(program)
        return self._run("update", True, expect_no_changes, refresh=refresh)

    def destroy(self) -> Outcome:
        return self._run("destroy", False)

    @property
    def state_file(self) -> Path:
        return self.root / ".local/state/.pulumi/stacks/sandbox/dev.json"

    @property
    def state(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.state_file.read_text())
        latest: dict[str, Any] = document["checkpoint"]["latest"]
        return latest

    @property
    def stored(self) -> dict[str, dict[str, Any]]:
        """Return the resources of the state by name, without those that are still to be deleted."""
        return {
            r["urn"].split("::", 3)[3]: r
            for r in self.state.get("resources", [])
            if not r.get("delete")
        }
