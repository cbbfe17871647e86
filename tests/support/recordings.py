"""Output recorded from real machines; recorded/README.md lists the source of each."""

from local.paths import ROOT

FOLDER = ROOT / "tests/unit/agents/checks/recorded"


def recorded(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()
