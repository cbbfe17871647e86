"""Random order and moments, which a test can repeat with the printed seed."""

import random
import secrets
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def shuffled(choices: Sequence[T], rounds: int) -> tuple[random.Random, list[T]]:
    """Return each choice about equally often, in random order; and a generator for more numbers."""
    seed = secrets.randbits(32)
    print(f"seed: {seed}")
    chance = random.Random(seed)
    found = [choices[index % len(choices)] for index in range(rounds)]
    chance.shuffle(found)
    return chance, found
