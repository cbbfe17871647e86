"""Blocks of nodes in the file topology.conf."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from agents.hostlist import compress

_STEPS: Final = (1, 2, 4, 8, 16)
"""Factors for the size of the smallest block. Slurm uses the same factors if BlockSizes is
missing."""


def block_sizes(blocks: Iterable[int]) -> list[int]:
    """Return BlockSizes; `blocks` contains the number of nodes of each block.

    Without BlockSizes, Slurm would multiply the size of the first block, not of the smallest block.
    If the first block is not the smallest, slurmctld would not start (source: block_record.c,
    Slurm 24.11.5).
    """
    smallest = min(blocks, default=1)
    return [smallest * step for step in _STEPS]


def block_lines(blocks: Mapping[str, Collection[str]], sizes: Sequence[int]) -> list[str]:
    """Return the lines for blocks with these nodes, in the given order.

    If there are no blocks, return no lines.
    """
    lines = [f"BlockName={name} Nodes={compress(nodes)}" for name, nodes in blocks.items()]
    return [*lines, f"BlockSizes={','.join(map(str, sizes))}"] if lines else []
