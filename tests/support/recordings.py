"""Texts that real machines printed; where each is from stands in recorded/README.md."""

from local.paths import ROOT

FOLDER = ROOT / "tests/unit/agents/checks/recorded"


def recorded(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()
