"""Show a deployment: as a live tree on a terminal, as lines elsewhere, or as one JSON document.

Results go to standard output, errors to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, TextIO

from engine.changes import Change
from engine.events import Display, Severity, Step
from engine.planning import Op
from engine.policies import Level, Verdict, Violation, mandatory
from engine.show import redacted, shown
from engine.state import StoredResource, to_json
from engine.urns import name_of, resource_type_of, short
from engine.values import UNKNOWN_STRING, Properties

SYMBOLS: Final = {
    Op.SAME: " ",
    Op.CREATE: "+",
    Op.UPDATE: "~",
    Op.REPLACE: "+-",
    Op.DELETE: "-",
    Op.READ: ">",
}
COLOURS: Final = {
    Op.SAME: "default",
    Op.CREATE: "green",
    Op.UPDATE: "yellow",
    Op.REPLACE: "magenta",
    Op.DELETE: "red",
    Op.READ: "cyan",
}
_DOING: Final = {
    Op.SAME: "checking",
    Op.CREATE: "creating",
    Op.UPDATE: "updating",
    Op.REPLACE: "creating replacement",
    Op.DELETE: "deleting",
    Op.READ: "reading",
}
_DONE: Final = {
    Op.SAME: "unchanged",
    Op.CREATE: "created",
    Op.UPDATE: "updated",
    Op.REPLACE: "replaced",
    Op.DELETE: "deleted",
    Op.READ: "read",
}
_SHOWN_CHANGES: Final = 20


@dataclass(frozen=True)
class Result:
    """Outcome of a deployment; ``seconds`` is its duration."""

    succeeded: bool
    cancelled: bool
    preview: bool
    counts: Mapping[Op, int]
    failures: int
    outputs: Properties | None
    outputs_before: Properties | None
    seconds: float
    verdicts: tuple[Verdict, ...] = ()


class Report(Display, Protocol):
    """A display that also shows the result."""

    def __enter__(self) -> Report:
        """Start the display."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the terminal."""

    def finish(self, result: Result) -> None:
        """Show outputs, counts and duration."""


def summary(result: Result) -> str:
    """Return the counts in one line: ``+ 3 created, ~ 1 updated, 38 unchanged, 1 failed``."""
    parts = []
    for op in (Op.CREATE, Op.UPDATE, Op.REPLACE, Op.DELETE, Op.READ):
        count = result.counts.get(op, 0)
        if count:
            words = f"to {op.value}" if result.preview and op is not Op.READ else _DONE[op]
            parts.append(f"{SYMBOLS[op]} {count} {words}")
    unchanged = result.counts.get(Op.SAME, 0)
    if unchanged or not parts:
        parts.append(f"{unchanged} unchanged")
    if result.failures:
        parts.append(f"{result.failures} failed")
    return ", ".join(parts)


def _change_line(change: Change) -> str:
    mark = "  (forces replacement)" if change.replaces else ""
    place = change.place or change.path
    if change.lines:
        return f"{place}:{mark}"
    if change.old is None and change.new is None:
        return f"{place}{mark}"
    if change.old is None:
        return f"{place}: + {change.new}{mark}"
    if change.new is None:
        return f"{place}: - {change.old}{mark}"
    return f"{place}: {change.old} => {change.new}{mark}"


def change_lines(changes: Sequence[Change]) -> list[str]:
    """Return a line for each changed property.

    Below a text with several lines, such as a file, show the changed lines. Show at most 20
    properties, and at most 20 lines of each text. A last line gives the number of omitted lines.
    """
    lines: list[str] = []
    for change in changes[:_SHOWN_CHANGES]:
        lines.append(_change_line(change))
        lines += [f"  {line}" for line in limited(change.lines)]
    more = len(changes) - _SHOWN_CHANGES
    return [*lines, f"… {more} more"] if more > 0 else lines


def limited(lines: Sequence[str]) -> list[str]:
    """Return at most 20 lines. If there are more, add a line with the number of omitted lines."""
    more = len(lines) - _SHOWN_CHANGES
    return [*lines[:_SHOWN_CHANGES], *([f"… {more} more"] if more > 0 else [])]


def verdict(result: Result) -> str:
    if result.cancelled:
        return "cancelled"
    return "succeeded" if result.succeeded else "failed"


def _output_lines(result: Result) -> list[str]:
    if not result.succeeded or result.outputs is None:
        return []
    after, before = result.outputs, result.outputs_before or {}
    names = sorted(after.keys() | before.keys())
    width = max(map(len, names), default=0)
    lines = [f"    {name:<{width}}: {_output(name, before, after)}" for name in names]
    return ["Outputs:", *lines] if lines else []


def _output(name: str, before: Properties, after: Properties) -> str:
    if name not in after:
        return f"- {shown(before[name])}"
    if name in before and before[name] != after[name]:
        return f"{shown(before[name])} => {shown(after[name])}"
    return shown(after[name])


def _policy_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return each pack with its violations, mandatory ones first, as the `pulumi` command does."""
    lines = ["Policies:"] if verdicts else []
    for verdict in verdicts:
        found = verdict.violations
        mark = "❌" if mandatory(found) else "⚠️" if found else "✅"
        lines.append(f"    {mark} {verdict.name}@v{verdict.version} (local: {verdict.path})")
        for one in sorted(found, key=lambda v: (v.level is Level.ADVISORY, v.policy, v.urn)):
            what = f"{resource_type_of(one.urn)}: {name_of(one.urn)}"
            lines.append(f"        - [{one.level}]  {one.policy}  ({what})")
            lines.extend(f"          {line}" for line in one.message.rstrip().split("\n"))
    return lines


def _ended(result: Result) -> str:
    if not result.succeeded:
        return f"{verdict(result)} after"
    return "previewed in" if result.preview else "done in"


def _end_lines(result: Result) -> list[str]:
    return [
        *_policy_lines(result.verdicts),
        *_output_lines(result),
        f"{summary(result)} ({_ended(result)} {result.seconds:.1f} s)",
    ]


class Plain:
    """A line per event, for logs and pipes."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._status: dict[str, str] = {}

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def _line(self, text: str) -> None:
        # Ignore a closed pipe (`… | head`): it must not stop a deployment halfway.
        with contextlib.suppress(OSError):
            print(text, file=self._out, flush=True)

    def _error(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._out.flush()
            print(f"error: {text}", file=self._err, flush=True)

    def _step(self, step: Step, words: str) -> None:
        self._line(f"{SYMBOLS[step.op]:>2} {short(step.urn)} {words}")

    def known(self, step: Step) -> None:
        if step.op is Op.SAME:
            return
        self._step(step, step.note or step.op.value)
        for line in change_lines(step.changes):
            self._line(f"       {line}")

    def started(self, step: Step) -> None:
        self._step(step, step.note or _DOING[step.op])

    def status(self, urn: str, line: str) -> None:
        if urn and self._status.get(urn) != line:
            self._status[urn] = line
            if line:
                self._line(f"   {short(urn)}: {line}")

    def finished(self, step: Step, seconds: float) -> None:
        if step.op is not Op.SAME:
            words = f"{step.note}: done" if step.note else _DONE[step.op]
            self._step(step, f"{words} ({seconds:.1f} s)")

    def failed(self, step: Step, reason: str) -> None:
        self._error(f"{short(step.urn)}: {reason}")

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        where = f"{short(urn)}: " if urn else ""
        if severity is Severity.ERROR:
            self._error(f"{where}{text}")
        elif severity is Severity.WARNING:
            self._line(f"warning: {where}{text}")
        else:
            self._line(f"{where}{text}")

    def finish(self, result: Result) -> None:
        for line in _end_lines(result):
            self._line(line)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    violations = [
        {"policy": one.policy, "level": one.level.value, "urn": one.urn, "message": one.message}
        for one in verdict.violations
    ]
    return {"name": verdict.name, "version": verdict.version, "violations": violations}


class Json:
    """One document on standard output; progress on standard error."""

    def __init__(self, only_failure: bool = False) -> None:
        self._only_failure = only_failure
        self._progress = Plain(out=sys.stderr)
        self._steps: list[dict[str, Any]] = []
        self._diagnostics: list[dict[str, str]] = []

    def __enter__(self) -> Json:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def _add(self, step: Step, **more: Any) -> None:
        entry: dict[str, Any] = {
            "op": step.op.value,
            "urn": step.urn,
            "type": resource_type_of(step.urn),
            "name": name_of(step.urn),
        }
        if step.note:
            entry["note"] = step.note
        if step.changes:
            entry["changes"] = [
                {
                    "path": c.path,
                    "old": c.old,
                    "new": c.new,
                    "replaces": c.replaces,
                    **({"lines": c.lines} if c.lines else {}),
                }
                for c in step.changes
            ]
        self._steps.append({**entry, **more})

    def known(self, step: Step) -> None:
        self._add(step)
        self._progress.known(step)

    def started(self, step: Step) -> None:
        self._progress.started(step)

    def status(self, urn: str, line: str) -> None:
        self._progress.status(urn, line)

    def finished(self, step: Step, seconds: float) -> None:
        self._add(step, seconds=round(seconds, 3))
        self._progress.finished(step, seconds)

    def failed(self, step: Step, reason: str) -> None:
        self._add(step, error=reason)
        self._progress.failed(step, reason)

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        entry = {"severity": severity.value, "message": text}
        self._diagnostics.append({**entry, "urn": urn} if urn else entry)
        self._progress.message(severity, text, urn)

    def finish(self, result: Result) -> None:
        if self._only_failure and result.succeeded:
            return
        document = {
            "result": verdict(result),
            "preview": result.preview,
            "changes": {op.value: count for op, count in sorted(result.counts.items())},
            "outputs": redacted(result.outputs or {}),
            "steps": self._steps,
            "diagnostics": self._diagnostics,
            "policies": [_verdict(one) for one in result.verdicts],
            "seconds": round(result.seconds, 3),
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))


class PreviewJson(Json):
    """The document of `pulumi preview --json`, so that one parser can read both engines' previews.

    As in Pulumi, the document has no stack outputs. It has the number of unchanged resources, but
    not the resources themselves. Progress is not printed, because a preview takes only seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._progress = Plain(out=io.StringIO(), err=io.StringIO())

    def _add(self, step: Step, **more: Any) -> None:
        if step.op is Op.SAME or not step.counts:
            return
        states = {"oldState": step.old, "newState": step.new}
        self._steps.append(
            {
                "op": step.op.value,
                "urn": step.urn,
                **{key: _state(found) for key, found in states.items() if found is not None},
                "diffReasons": [change.path for change in step.changes],
                "replaceReasons": [change.path for change in step.changes if change.replaces],
                "detailedDiff": None,
            }
        )

    def failed(self, step: Step, reason: str) -> None:
        super().failed(step, reason)
        self._diagnostics.append({"severity": "error", "message": reason, "urn": step.urn})

    def finish(self, result: Result) -> None:
        found = [one for verdict in result.verdicts for one in verdict.violations]
        document = {
            "steps": self._steps,
            "diagnostics": [*self._diagnostics, *map(_violated, found)],
            "duration": round(result.seconds * 1e9),
            "changeSummary": {op.value: count for op, count in sorted(result.counts.items())},
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))


def _violated(found: Violation) -> dict[str, str]:
    severity = "error" if found.level is Level.MANDATORY else "warning"
    message = f"policy {found.policy}: {found.message.strip()}"
    return {"severity": severity, "message": message, "urn": found.urn}


def _state(resource: StoredResource) -> dict[str, Any]:
    return to_json(resource, lambda value: redacted(value, UNKNOWN_STRING))


@dataclass
class _Row:
    step: Step
    state: str  # "running", "done", "failed", "known"
    begun: float
    seconds: float = 0.0
    text: str = ""


@dataclass
class _Tree:
    """Contents of the live tree by URN, in the order in which the resources first appeared."""

    rows: dict[str, _Row] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)


class Live:
    """A tree on a terminal, updated in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._tree = _Tree()
        self._counts: Counter[Op] = Counter()
        self._begun = time.monotonic()
        self._over = False
        self._live = RichLive(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Live:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if not self._over:
            self._over = True
            self._live.__exit__(None, None, None)

    def _row(self, step: Step, state: str) -> _Row:
        self._tree.parents[step.urn] = step.parent
        row = self._tree.rows.get(step.urn)
        if row is None:
            row = self._tree.rows[step.urn] = _Row(step, state, time.monotonic())
        row.step, row.state = step, state
        return row

    def known(self, step: Step) -> None:
        self._counts[step.op] += 1
        self._row(step, "known")

    def started(self, step: Step) -> None:
        row = self._row(step, "running")
        row.begun, row.text = time.monotonic(), ""

    def status(self, urn: str, line: str) -> None:
        row = self._tree.rows.get(urn)
        if row is not None:
            row.text = line

    def finished(self, step: Step, seconds: float) -> None:
        self._counts[step.op] += 1
        row = self._row(step, "done")
        row.seconds, row.text = seconds, ""

    def failed(self, step: Step, reason: str) -> None:
        row = self._row(step, "failed")
        row.seconds = time.monotonic() - row.begun
        row.text = reason

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        """Show a line above the tree."""
        from rich.text import Text

        where = f"{short(urn)}: " if urn else ""
        if severity is Severity.ERROR:
            line = Text.assemble(("error: ", "bold red"), where + text)
        elif severity is Severity.WARNING:
            line = Text.assemble(("warning: ", "yellow"), where + text)
        else:
            line = Text(where + text)
        console = self._live.console if not self._over else self._console
        console.print(line, soft_wrap=True)

    def finish(self, result: Result) -> None:
        """Print the final tree of changes, then outputs, counts and duration."""
        from rich.text import Text

        self._stop()
        tree = self._lines(everything=True)
        if tree is not None:
            self._console.print(tree)
        for urn, row in self._tree.rows.items():
            if row.state == "failed":
                line = Text.assemble(("error: ", "bold red"), f"{short(urn)}: {row.text}")
                self._errors.print(line, soft_wrap=True)
        for text in _end_lines(result):
            self._console.print(Text(text), soft_wrap=True)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        # The library rich calls this method in its own thread. Iterate over copies, because the
        # engine's thread may change the originals.
        running = sum(row.state == "running" for row in list(self._tree.rows.values()))
        seconds = time.monotonic() - self._begun
        head = Text(
            f"{running} running, {sum(self._counts.values())} done, {seconds:.0f} s", style="dim"
        )
        tree = self._lines(everything=False)
        return head if tree is None else Group(tree, head)

    def _lines(self, *, everything: bool) -> Any:
        from rich.tree import Tree

        wanted = self._wanted(everything)
        root = Tree("", hide_root=True, guide_style="dim")
        nodes: dict[str, Any] = {"": root}
        for urn in self._with_parents(wanted):
            above = nodes.get(self._tree.parents.get(urn, ""), root)
            nodes[urn] = above.add(self._text(urn, everything))
        return root if len(nodes) > 1 else None

    def _wanted(self, everything: bool) -> list[str]:
        """Return the URNs of changed resources.

        If the screen is too small, return only running and failed resources.
        """
        changed = [
            urn
            for urn, row in list(self._tree.rows.items())
            if row.step.op is not Op.SAME or row.state == "failed"
        ]
        if everything or len(self._with_parents(changed)) <= self._console.height - 3:
            return changed
        busy = [u for u in changed if self._tree.rows[u].state in ("running", "failed")]
        return busy[: max(1, (self._console.height - 3) // 2)]

    def _with_parents(self, wanted: list[str]) -> list[str]:
        """Return the URNs with all their ancestors, each after its parent."""
        result: dict[str, None] = {}

        def add(urn: str) -> None:
            if urn in result:
                return
            parent = self._tree.parents.get(urn, "")
            if parent:
                add(parent)
            result[urn] = None

        for urn in wanted:
            add(urn)
        return list(result)

    def _text(self, urn: str, everything: bool) -> Any:
        from rich.text import Text

        row = self._tree.rows.get(urn)
        if row is None:
            return Text(short(urn), style="dim")
        colour = COLOURS[row.step.op]
        text = Text.assemble(
            (f"{SYMBOLS[row.step.op]} ", colour),
            (f"{resource_type_of(urn)} ", "dim"),
            name_of(urn),
        )
        text.append_text(Text(f"  {self._words(row)}", style=self._style(row)))
        if everything and row.state == "known":
            for line in change_lines(row.step.changes):
                text.append(f"\n    {line}", style="dim")
        text.no_wrap = not everything
        text.overflow = "ellipsis"
        return text

    def _words(self, row: _Row) -> str:
        if row.state == "running":
            waiting = f"  {row.text}" if row.text else ""
            doing = row.step.note or _DOING[row.step.op]
            return f"{doing} ({time.monotonic() - row.begun:.0f} s){waiting}"
        if row.state == "failed":
            return f"failed ({row.seconds:.1f} s)"
        if row.state == "known":
            return "" if row.step.op is Op.SAME else row.step.op.value
        if row.step.op is Op.SAME:
            return ""
        return f"{_DONE[row.step.op]} ({row.seconds:.1f} s)"

    def _style(self, row: _Row) -> str:
        if row.state == "failed":
            return "bold red"
        return "dim" if row.step.op is Op.SAME else COLOURS[row.step.op]


def choose(as_json: bool, *, preview: bool = False, only_failure: bool = False) -> Report:
    """Return the display that fits standard output.

    ``only_failure`` is for the preview before an `up` or `destroy`. Such a preview prints its JSON
    document only if it fails. Otherwise, the following run prints a document.
    """
    if as_json:
        return PreviewJson() if preview else Json(only_failure)
    return Live() if sys.stdout.isatty() else Plain()
