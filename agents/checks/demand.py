"""Run the checks for an operator, and print their results."""

import argparse
import json
import sys
from collections.abc import Sequence

from agents.checks.passes import Outcome, Verdict, carry_out
from agents.checks.readers import SETTINGS, STATE, node_name
from agents.checks.settings import SettingsError, read

PASSED, FAILED, UNUSABLE, UNKNOWN = range(4)
_COLOURS = {Verdict.PASSED: "32", Verdict.FAILED: "31", Verdict.UNKNOWN: "33"}


def show(name: str, arguments: Sequence[str]) -> int:
    options = _parser(name).parse_args(arguments)
    try:
        chosen = read(SETTINGS)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    names = {one.check.name for one in chosen}
    if unknown := sorted(set(options.checks) - names):
        wanted = (
            f"use one of the checks {', '.join(sorted(names))}"
            if names
            else "the settings enable no checks on this node"
        )
        print(f"'{unknown[0]}' is not a check of this node; {wanted}", file=sys.stderr)
        return UNUSABLE
    outcomes = carry_out(
        [one for one in chosen if not options.checks or one.check.name in options.checks], STATE
    )
    print(as_json(outcomes) if options.json else table(outcomes, colours=sys.stdout.isatty()))
    verdicts = {one.verdict for one in outcomes}
    if Verdict.FAILED in verdicts:
        return FAILED
    return UNKNOWN if Verdict.UNKNOWN in verdicts else PASSED


def as_json(outcomes: Sequence[Outcome]) -> str:
    checks = {
        one.name: {"verdict": one.verdict, "what": one.what, "effect": one.effect}
        for one in outcomes
    }
    return json.dumps({"node": node_name(), "checks": checks})


def table(outcomes: Sequence[Outcome], *, colours: bool) -> str:
    """Return one line for each outcome.

    With `colours`, the columns are aligned and verdicts are coloured. Otherwise tabs separate the
    columns.
    """
    if not colours:
        return "\n".join(f"{one.name}\t{one.verdict}\t{one.what}" for one in outcomes)
    width = max((len(one.name) for one in outcomes), default=0)
    return "\n".join(
        f"{one.name:{width}}  {_coloured(one.verdict)}  {one.what}".rstrip() for one in outcomes
    )


def _coloured(verdict: Verdict) -> str:
    return f"\033[{_COLOURS[verdict]}m{verdict:7}\033[0m"


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name, description="Run the checks of this node and show the results. Changes nothing."
    )
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help="name of a check to run (default: all checks of this node)",
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    return parser
