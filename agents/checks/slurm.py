"""What a pass does to its node in Slurm: drains it, never lifts, and leaves its evidence.

A drain of anybody else's stays as it is. Slurm has no way to change a reason only if it is still
what was read, so that between reading and writing there are some milliseconds.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from agents.checks import bounded
from agents.checks.passes import Outcome, Verdict
from agents.checks.registry import Effect
from agents.containers.counts import Counts, read
from agents.drains import CHECK, Evidence

CONF = "/var/spool/slurmd/conf-cache/slurm.conf"
"""What slurmd has fetched of Slurm's configuration."""
OUT_OF_SERVICE = "drain,down,fail"
"""States in which a node's reason is why it is where it is."""
_READ, _WRITE = 1.5, 2.0
"""Seconds that Slurm may take."""
_LONGEST = 250
"""Characters of a reason."""


class SilenceError(Exception):
    """Slurm does not answer, or will not; nothing is changed."""


def evidence(at: int, outcomes: Iterable[Outcome]) -> Evidence:
    """Of a pass that began at `at` and was of all checks: what it read is no younger."""
    drains = [one for one in outcomes if one.effect is Effect.DRAIN]
    failed, unknown = (
        tuple(sorted(one.name for one in drains if one.verdict is verdict))
        for verdict in (Verdict.FAILED, Verdict.UNKNOWN)
    )
    return Evidence(at, failed, unknown)


def reason(outcomes: Iterable[Outcome], standing: str) -> str | None:
    """The reason to drain for, where the node now has the reason `standing`; None to leave it."""
    outcomes = list(outcomes)
    failed = [one for one in outcomes if one.drains]
    if not failed or (standing and not standing.startswith(CHECK)):
        return None
    named = standing.removeprefix(CHECK).partition(":")[0]
    # What the drain stands for may be over while something else is wrong.
    passed = {one.name for one in outcomes if one.verdict is Verdict.PASSED}
    if standing and named not in passed:
        return None
    text = f"{CHECK}{failed[0].name}: {failed[0].what}"
    return " ".join(text.replace('"', "'").split())[:_LONGEST]


def drain(node: str, outcomes: Sequence[Outcome], state: Path) -> str | None:
    """Drains the node, and returns the reason, or None where there is nothing to do.

    Raises `SilenceError`.
    """
    return _update(node, outcomes, [], state)


def settle(node: str, outcomes: Sequence[Outcome], at: int, state: Path) -> str | None:
    """The same, and leaves the evidence of a whole pass. Raises `SilenceError`."""
    return _update(node, outcomes, [f"extra={record(evidence(at, outcomes), read())}"], state)


def record(found: Evidence, images: Counts | None) -> str:
    """Return the `extra` of the node's record: an object of JSON in one line."""
    fields = found.fields() | (images.fields() if images else {})
    return json.dumps(fields, separators=(",", ":"))


def _update(node: str, outcomes: Sequence[Outcome], words: list[str], state: Path) -> str | None:
    found = None
    if any(one.drains for one in outcomes):
        found = reason(outcomes, _standing(node, state))
    if found:
        words = ["state=drain", f"reason={found}", *words]
    if words:
        _ask("update", ("scontrol", "update", f"nodename={node}", *words), _WRITE, state)
    return found


def _standing(node: str, state: Path) -> str:
    """Why the node is out of service; "" where it is not."""
    command = (
        "sinfo",
        "--noheader",
        f"--nodes={node}",
        f"--states={OUT_OF_SERVICE}",
        "--format=%E",
    )
    return _ask("sinfo", command, _READ, state).strip()


def _ask(name: str, command: Sequence[str], seconds: float, state: Path) -> str:
    reading = bounded.run({name: (seconds, command)}, state)[name]
    if reading is None:
        raise SilenceError(f"Slurm does not answer within {seconds:g} s")
    if reading.code:
        said = " ".join(reading.said.split()) or f"exit code {reading.code}"
        raise SilenceError(f"Slurm does not answer: {command[0]}: {said}")
    return reading.text
