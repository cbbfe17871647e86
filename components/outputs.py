"""Pulumi outputs that depend on other resources."""

from typing import TypeVar

import pulumi

T = TypeVar("T")


def once_known(value: pulumi.Input[T], *others: pulumi.Input[object]) -> pulumi.Output[T]:
    """Return the value as an output that is known once the others are known.

    Resources that use the output are created after the others' resources. If a preview does not
    know the others' values, it shows false changes.
    """
    return pulumi.Output.all(value, *others).apply(lambda known: known[0])
