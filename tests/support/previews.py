"""Previews that the `pulumi` command printed."""

from local.paths import ROOT
from plans.reading import Preview, read

RECORDED = ROOT / "tests/unit/plans/recorded"


def recorded(name: str) -> Preview:
    return read((RECORDED / f"{name}.json").read_text(), name)
