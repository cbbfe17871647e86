"""Read quantities of Kubernetes, such as `500m` CPUs or `2Gi` of memory.

For the format, see https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal

_FORMAT = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_UNITS = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * n - 9) for n, unit in enumerate("num")},
    **{unit: Decimal(1000) ** n for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", 1)},
}
MIB = 2**20
NOTHING = Decimal()
MOST = 2**63 - 1
"""Largest amount in Kubernetes (k8s.io/apimachinery/pkg/api/resource)."""


def parse(text: str | float) -> Decimal:
    """Return a quantity as a number.

    Raises `ValueError` if the text is not a quantity, or is negative or too large. Without a limit,
    a text such as `1e999999` would occupy the process for minutes.
    """
    found = _FORMAT.fullmatch(str(text).strip())
    try:
        if found:
            number, exponent, unit = found.groups()
            amount = Decimal(number + (exponent or "")) * _UNITS[unit or ""]
            if 0 <= amount <= MOST:
                return amount
    except ArithmeticError:
        pass
    raise ValueError(f"'{text}': expected a quantity of Kubernetes, such as '500m' or '2Gi'")


def refuse_zero(limits: Mapping[str, str | int | float]) -> None:
    """Refuse limits of 0: Kubernetes then sets no limit. Raises `ValueError`."""
    for name in ("cpu", "memory"):
        if name in limits and not parse(limits[name]):
            raise ValueError(
                f"limits.{name}: '{limits[name]}': Kubernetes would not limit the pod; set a "
                "higher limit, or remove it"
            )


def whole(amount: Decimal) -> int:
    """Round up to a whole number, such as a number of CPUs."""
    return math.ceil(amount)


def mebibytes(amount: Decimal) -> int:
    """Convert bytes to MiB, and round up."""
    return math.ceil(amount / MIB)
