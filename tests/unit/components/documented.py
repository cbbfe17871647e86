"""Read the tables of docs/settings.md."""

import re

from components.settings import Settings
from local.paths import ROOT

DOCUMENT = ROOT / "docs" / "settings.md"
VALUE = re.compile(r"`([^`]+)`")


def edits() -> dict[str, str]:
    """Return the texts of the table "What an edit does" by key.

    Keys have the form that `fields` yields, without a final `.*`. The row about the order of lists
    is left out, because it describes no single setting.
    """
    table = DOCUMENT.read_text().split("## What an edit does")[1].split("###")[0]
    return {
        key if _section(key) in Settings.model_fields else f"nodesets[].{key}": text
        for line in table.splitlines()
        if re.match(r"\| (?!the order)", line)
        for cell, text in [line.strip("|").split(" | ", 1)]
        for key in _keys(cell)
    }


def _keys(cell: str) -> list[str]:
    return [key.partition(":")[0].removesuffix(".*") for key in VALUE.findall(cell)]


def _section(key: str) -> str:
    return re.split(r"[.\[]", key)[0]
