"""Drain the node in Slurm if a check failed, and record the results as evidence.

This module never lifts a drain.

Evidence is the list of failed and undecided checks. It is in the field `extra` of the node's Slurm
record. The reconciler reads this field to decide whether it can lift a drain.

If an operator or another program has drained the node, the drain and its reason stay unchanged.
Slurm cannot set a reason on the condition that the old reason has not changed. So if another client
sets a reason in the milliseconds between this module's read and write, that reason is lost.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from agents.checks import bounded
from agents.checks.passes import Outcome, Verdict
from agents.checks.registry import Effect
from agents.containers.counts import Counts, read
from agents.drains import CHECK, NOT_RESPONDING, Evidence

CONF = "/var/spool/slurmd/conf-cache/slurm.conf"
"""slurm.conf on this node. slurmd fetches it from the controller."""
OUT_OF_SERVICE = "drain,down,fail"
"""States of a node for which Slurm stores a reason."""
_READ, _WRITE = 1.5, 2.0
"""Time limits in seconds for a read from Slurm, and for an update in Slurm."""
_LONGEST = 250
"""Maximum length of a reason, in characters."""


class SilenceError(Exception):
    """Slurm did not answer or returned an error."""


def evidence(at: int, outcomes: Iterable[Outcome]) -> Evidence:
    """Return the evidence of a run of all checks. The run started at `at`, in Unix time."""
    drains = [one for one in outcomes if one.effect is Effect.DRAIN]
    failed, unknown = (
        tuple(sorted(one.name for one in drains if one.verdict is verdict))
        for verdict in (Verdict.FAILED, Verdict.UNKNOWN)
    )
    return Evidence(at, failed, unknown)


def reason(outcomes: Iterable[Outcome], standing: str) -> str | None:
    """Return a new drain reason, or None to change nothing.

    `standing` is the node's current reason, or "" if the node is in service.
    """
    outcomes = list(outcomes)
    failed = [one for one in outcomes if one.drains]
    if standing.startswith(NOT_RESPONDING):
        # Replace this reason of Slurm: otherwise the node would be in service again as soon as its
        # slurmd registers.
        standing = ""
    if not failed or (standing and not standing.startswith(CHECK)):
        return None
    named = standing.removeprefix(CHECK).partition(":")[0]
    # Replace the current reason if its check passes now, while another check fails.
    passed = {one.name for one in outcomes if one.verdict is Verdict.PASSED}
    if standing and named not in passed:
        return None
    text = f"{CHECK}{failed[0].name}: {failed[0].what}"
    return " ".join(text.replace('"', "'").split())[:_LONGEST]


def drain(node: str, outcomes: Sequence[Outcome], state: Path) -> str | None:
    """Drain the node if a check failed. Returns the new reason, or None. Raises `SilenceError`."""
    return _update(node, outcomes, [], state)


def settle(node: str, outcomes: Sequence[Outcome], at: int, state: Path) -> str | None:
    """Drain the node like `drain`, and record the evidence. Raises `SilenceError`."""
    return _update(node, outcomes, [f"extra={record(evidence(at, outcomes), read())}"], state)


def record(found: Evidence, images: Counts | None) -> str:
    """Return the `extra` field of the node's Slurm record: a JSON object in one line."""
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
    """Return the reason why the node is out of service, or "" if it is in service."""
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
        raise SilenceError(f"slurmctld did not answer {command[0]} within {seconds:g} s")
    if reading.code:
        said = " ".join(reading.said.split()) or f"exit code {reading.code}"
        raise SilenceError(f"the command {command[0]} failed: {said}")
    return reading.text
