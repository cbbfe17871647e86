"""Random order and random times. A test can repeat them with the printed seed."""

import random
import secrets
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def shuffled(choices: Sequence[T], rounds: int) -> tuple[random.Random, list[T]]:
    """Return `rounds` choices in random order, and the random generator that made this order.

    Each choice occurs about equally often. The caller can draw more numbers from the generator.
    """
    seed = secrets.randbits(32)
    print(f"seed: {seed}")
    chance = random.Random(seed)
    found = [choices[index % len(choices)] for index in range(rounds)]
    chance.shuffle(found)
    return chance, found
