"""Recorded output of real Slurm programs."""

from pathlib import Path

from agents.exporter.rows import Tables, parse

RECORDED = Path(__file__).parent / "recorded"


def tables() -> Tables:
    with (RECORDED / "snapshot.txt").open() as lines:
        return parse(lines)
