"""Pulumi outputs that depend on other resources."""

from typing import TypeVar

import pulumi

T = TypeVar("T")


def once_known(value: pulumi.Input[T], *others: pulumi.Input[object]) -> pulumi.Output[T]:
    """Return the value as an output that is known once the others are known.

    Pulumi creates resources that use the output after the resources of `others`. Pass values that a
    preview knows. Otherwise, the preview shows changes that do not happen.
    """
    return pulumi.Output.all(value, *others).apply(lambda known: known[0])
