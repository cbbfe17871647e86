"""Sizes of groups of blocks, for the file topology.conf."""

from collections.abc import Iterable
from typing import Final

_STEPS: Final = (1, 2, 4, 8, 16)
"""Sizes in blocks. These are Slurm's own if BlockSizes is missing."""


def block_sizes(blocks: Iterable[int]) -> list[int]:
    """Return BlockSizes for blocks of these numbers of nodes.

    Without BlockSizes, Slurm would take the first block instead of the smallest, and slurmctld
    would not start (block_record.c, 24.11.5).
    """
    smallest = min(blocks, default=1)
    return [smallest * step for step in _STEPS]
