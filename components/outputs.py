"""Pulumi outputs whose values become known only after other resources exist."""

from typing import TypeVar

import pulumi

T = TypeVar("T")


def once_known(value: pulumi.Input[T], *others: pulumi.Input[object]) -> pulumi.Output[T]:
    """Return `value` as an output. Pulumi knows this output only after it also knows all of
    `others`.

    So Pulumi creates resources that use the output after the resources of `others`. Choose `others`
    that a preview also knows, such as an object's namespace. Otherwise, the preview shows changes
    that do not happen.
    """
    return pulumi.Output.all(value, *others).apply(lambda known: known[0])
