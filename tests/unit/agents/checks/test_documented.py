"""The table of checks in docs/health.md matches `agents.checks.registry`."""

import json

import pytest

from agents.checks.registry import CHECKS, Check, When
from local.paths import ROOT

DOCUMENT = ROOT / "docs" / "health.md"


def rows() -> dict[str, list[str]]:
    """Return the cells of each row by the name of its check."""
    found = {}
    for line in DOCUMENT.read_text().split("## The checks")[1].splitlines():
        if line.startswith("| `"):
            name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            found[name.strip("`")] = cells
        elif line.startswith("## "):
            break
    return found


def test_table_lists_the_checks_in_the_order_of_the_registry() -> None:
    assert list(rows()) == list(CHECKS)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_each_row_matches_the_registry(check: Check) -> None:
    says, nodes, when, limits, effect, lift = rows()[check.name]

    assert (says, nodes, effect, lift) == (
        check.says,
        check.nodes,
        f"`{check.effect}`",
        check.lift,
    )
    around = [str(one) for one in (When.PROLOG, When.EPILOG) if one in check.when]
    assert when == (", ".join(around) or "–")
    documented = dict(part.split(": ", 1) for part in limits.split("; ")) if check.limits else {}
    assert [name.strip("`") for name in documented] == list(check.limits)
    for name, default in check.limits.items():
        value = documented[f"`{name}`"]
        # For patterns, and for limits without a default, the table has words instead of a value.
        if value.startswith("`"):
            assert json.loads(value.strip("`")) == json.loads(json.dumps(default))
        else:
            assert default is None or name == "patterns"
