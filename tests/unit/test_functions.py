"""Functions have a maximum length, which ruff cannot check: it counts no lines of functions."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from local.paths import ROOT

FOLDERS: Final = (
    *("agents", "components", "engine", "images", "local"),
    *("monitoring", "plans", "policy", "stackfile"),
)
LONGEST: Final = 60


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """Yield each function and its number of lines."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            yield node.name, node.end_lineno - node.lineno + 1


def test_functions_have_at_most_60_lines() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]

    too_long = {
        f"{file.relative_to(ROOT)}: {name}": lines
        for file in files
        for name, lines in functions(file)
        if lines > LONGEST
    }

    assert too_long == {}
