"""Read the output of `pulumi preview --json`, or the same output of the embedded engine."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from components.conventions import COST_LOGGED, PROJECT
from engine.changes import Change, changes
from engine.paths import parse_path
from engine.planning import Op, Plan
from engine.providers.kubernetes.manifests import differences
from engine.show import SECRET_SHOWN
from engine.urns import is_provider, name_of, resource_type_of, short
from engine.values import UNKNOWN_STRING, changed_paths, format_path

ORDER: Final = (Op.REPLACE, Op.DELETE, Op.UPDATE, Op.CREATE)
"""Order of operations: destructive ones first, so that truncation spares them."""
_OPS: Final = {op.value: op for op in (Op.CREATE, Op.UPDATE, Op.REPLACE, Op.DELETE)}
# Skip these operations: they change nothing, or belong to a step "replace", which is also listed.
_PASSED_OVER: Final = frozenset(
    {"create-replacement", "delete-replaced", "read", "read-replacement", "refresh", "same"}
)
_KUBERNETES: Final = "kubernetes:"
_MARK: Final = re.compile(rf",{PROJECT}=[0-9a-f]+")
"""Matches a checksum in a line of slurm.conf. It covers all files of Slurm.

Source: components.slurmconf.config_digest.
"""


class PlanError(Exception):
    """A preview or plan cannot be read or published. The message is one line for users."""


_PRINTED: Final = 10
"""Maximum number of output lines to keep."""


@dataclass(frozen=True)
class Step:
    """Planned change of a resource. The inputs contain no secrets, because Pulumi replaces each
    secret with a fixed word."""

    op: Op
    urn: str
    old: Mapping[str, Any] | None = None
    """Current inputs, or None if the resource does not exist yet."""
    new: Mapping[str, Any] | None = None
    """Planned inputs, or None if the resource will no longer exist."""
    protected: bool = False
    retained: bool = False
    """Whether a deletion only removes the resource from the state."""
    changes: tuple[Change, ...] = ()
    sources: frozenset[str] = frozenset()
    """Names of the resources from which the current inputs come."""

    @property
    def type(self) -> str:
        """Type token of the resource, such as `kubernetes:apps/v1:StatefulSet`."""
        return resource_type_of(self.urn)

    @property
    def kind(self) -> str:
        """Last part of the type token, such as `StatefulSet`."""
        return self.type.rpartition(":")[2]

    @property
    def name(self) -> str:
        """Name of the resource in the program."""
        return name_of(self.urn)


@dataclass(frozen=True)
class Preview:
    """The contents of a preview.

    `steps` has the real resources, and components whose resources are not known yet. `unchanged` is
    the number of unchanged resources.
    """

    steps: tuple[Step, ...]
    unchanged: int = 0
    errors: tuple[str, ...] = field(default=())
    """Reasons for a failure, one line each."""
    warnings: tuple[str, ...] = field(default=())
    output: tuple[str, ...] = field(default=())
    """Last lines that the program and the policy packs printed."""
    cost_on_demand: str = ""
    """Highest and lowest cost of nodes on demand, which the program logs in each preview."""

    def shown(self) -> list[Step]:
        """Return the steps to show, destructive steps first, without the steps of `jobs`."""
        steps = [step for step in self.steps if not _is_own_job(step)]
        steps.sort(key=lambda step: (ORDER.index(step.op), step.kind, step.name))
        return _without_repeated_lines(steps)

    def jobs(self) -> list[str]:
        """Return the names of the stack's Kubernetes Jobs that run again, which need no review."""
        return sorted(step.name for step in self.steps if _is_own_job(step))


def _without_repeated_lines(steps: list[Step]) -> list[Step]:
    """Return the steps without repeated lines.

    If a change has two or more lines, and an earlier step has the same lines, the change only
    names the earlier step. The new slurm.conf, for example, is in two ConfigMaps: one for its
    test, one for slurmctld.
    """
    first: dict[tuple[str, ...], str] = {}
    for step in steps:
        for change in step.changes:
            first.setdefault(change.lines, step.name)
    return [
        replace(step, changes=tuple(_referring(change, step, first) for change in step.changes))
        for step in steps
    ]


def _referring(change: Change, step: Step, first: Mapping[tuple[str, ...], str]) -> Change:
    if len(change.lines) < 2 or first[change.lines] == step.name:
        return change
    return replace(change, lines=(f"the same lines as in {first[change.lines]}",))


def _is_own_job(step: Step) -> bool:
    return step.kind == "Job" and step.op is Op.REPLACE


def read(text: str, source: str, status: int = 0) -> Preview:
    """Parse the JSON document of a preview command. `status` is the exit code of this command.

    If a policy refuses a plan or cannot be evaluated, the exit code may be the only sign of it.
    Raises `PlanError`, which names the source.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        problem = "is empty" if not text.strip() else f"is not JSON: {error}"
        raise PlanError(
            f"{source}: {problem}; expected the output of `pulumi preview --json`"
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("steps", []), list):
        raise PlanError(
            f"{source}: expected an object with `steps`, the output of `pulumi preview --json`"
        )
    diagnostics = document.get("diagnostics", [])
    errors = list(_messages(diagnostics, "error"))
    # A run that failed early reports no summary, and may report no reason.
    if not errors and (status or "changeSummary" not in document):
        errors.append(
            f"the preview failed (exit code {status}), or a policy refused it; read the output of"
            " the preview, for example in the log of the job"
        )
    said = _messages(diagnostics, "output", "info", "info#err")
    printed = [line for line in said if COST_LOGGED not in line]
    return Preview(
        tuple(_steps(document.get("steps", []), source)),
        document.get("changeSummary", {}).get("same", 0),
        tuple(errors),
        tuple(_messages(diagnostics, "warning")),
        tuple(printed)[-_PRINTED:],
        _logged(diagnostics, COST_LOGGED),
    )


def _steps(entries: list[Mapping[str, Any]], source: str) -> Iterator[Step]:
    parents = {_types(entry.get("urn")).rpartition("$")[0] for entry in entries}
    for index, entry in enumerate(entries):
        op, urn = entry.get("op"), entry.get("urn")
        if op in _PASSED_OVER:
            continue
        if op not in _OPS or not isinstance(urn, str):
            raise PlanError(
                f"{source}: steps[{index}].op: {op!r}: expected one of {', '.join(_OPS)}; make the"
                " preview with the version of `pulumi` that this project supports"
            )
        old, new = entry.get("oldState"), entry.get("newState")
        state = old or new
        if state is None:
            raise PlanError(
                f"{source}: steps[{index}]: expected oldState or newState; make the preview with"
                " the version of `pulumi` that this project supports"
            )
        if state.get("custom"):
            is_shown = not is_provider(resource_type_of(urn))
        else:
            # This component runs in another process, which has not reported its resources yet.
            is_shown = bool(state.get("inputs")) and _types(urn) not in parents
        if is_shown:
            yield _step(_OPS[op], urn, entry, old, new)


def _types(urn: Any) -> str:
    """Return a resource's type, preceded by its parents' types, or "" if `urn` is not a URN."""
    return urn.split("::")[2] if isinstance(urn, str) and urn.count("::") > 2 else ""


def _step(
    op: Op,
    urn: str,
    entry: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
) -> Step:
    before = old.get("inputs", {}) if old else None
    after = new.get("inputs", {}) if new and op is not Op.DELETE else None
    changed: tuple[Change, ...] = ()
    if before is not None and after is not None:
        reasons = (*(entry.get("diffReasons") or ()), *(entry.get("detailedDiff") or {}))
        compared = differences if resource_type_of(urn).startswith(_KUBERNETES) else changed_paths
        paths = map(format_path, compared(before, after))
        replaces = tuple(entry.get("replaceReasons") or ())
        planned = Plan(op, tuple(dict.fromkeys((*paths, *reasons))), replaces)
        found = changes(before, after, planned, _shown)
        changed = tuple(filter(None, map(_without_mark, found))) or found
    return Step(
        op,
        urn,
        before,
        after,
        protected=bool(old and old.get("protect")),
        retained=bool(old and old.get("retainOnDelete")),
        changes=changed,
        sources=frozenset(_sources(old or {})),
    )


def _without_mark(change: Change) -> Change | None:
    """Leave out the checksum in slurm.conf (`_MARK`), which every edit changes.

    Return None if no line is left. In this case, another file of the same ConfigMap also changes.
    """
    marked = {line for line in change.lines if _MARK.search(line)}
    if not marked:
        return change
    plain = {_MARK.sub("", line) for line in marked}
    equal = {line[1:] for line in plain if line[0] == "-"}
    equal &= {line[1:] for line in plain if line[0] == "+"}
    lines = ((line in marked, _MARK.sub("", line)) for line in change.lines)
    kept = tuple(line for is_marked, line in lines if not (is_marked and line[1:] in equal))
    return replace(change, lines=kept) if kept else None


def _sources(state: Mapping[str, Any]) -> Iterator[str]:
    for urns in (state.get("propertyDependencies") or {}).values():
        yield from map(name_of, urns or ())


def _shown(value: Any) -> str:
    """Return a value as JSON. Secret and unknown values become fixed words."""
    if value == SECRET_SHOWN:
        return SECRET_SHOWN
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text.replace(f'"{UNKNOWN_STRING}"', "[not known yet]")


def _messages(diagnostics: list[Mapping[str, Any]], *severities: str) -> Iterator[str]:
    for entry in diagnostics:
        severity = entry.get("severity")
        if severity in severities:
            about = f"{short(entry['urn'])}: " if entry.get("urn") else ""
            for line in str(entry.get("message", "")).splitlines():
                if text := " ".join(line.split()).removeprefix(f"{severity}: "):
                    yield about + text


def _logged(diagnostics: list[Mapping[str, Any]], start: str) -> str:
    """Return the rest of the line that begins with `start`, or "" if there is no such line."""
    for entry in diagnostics:
        text = " ".join(str(entry.get("message", "")).split()).removeprefix("info: ")
        if entry.get("severity") == "info" and text.startswith(start):
            return text.removeprefix(start)
    return ""


def rolls_pods(step: Step) -> bool:
    """Return whether the step replaces a workload's pods, but not the workload."""
    template = ("template",) if step.kind == "PodTemplate" else ("spec", "template")
    return step.op is Op.UPDATE and any(
        parse_path(change.path)[: len(template)] == template for change in step.changes
    )
