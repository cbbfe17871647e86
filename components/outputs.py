"""Values of resources that are created later."""

from typing import TypeVar

import pulumi

T = TypeVar("T")


def once_known(value: pulumi.Input[T], *others: pulumi.Input[object]) -> pulumi.Output[T]:
    """Return the value, known once the others are: its consumers are created after their resources.

    The others must be values that a preview knows as well; otherwise it shows false changes.
    """
    return pulumi.Output.all(value, *others).apply(lambda known: known[0])
