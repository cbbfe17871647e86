"""Sizes of Amazon's instance types, from their names and from the tables below."""

import re
from collections.abc import Mapping
from typing import Final

from components.settings.clusters.machines import least_overhead

_SIZE: Final = re.compile(r"(?P<family>[a-z]+)\d[^.]*\.(metal-)?(?P<size>\d*)(xlarge|xl|large)")
_CPUS: Final = {"c4.8xlarge": 36, "d2.8xlarge": 36}
"""Exceptions: types whose number of CPUs does not follow from the size in their name (source: EC2,
CPU options)."""
_GIB: Final = {"c": 2, "m": 4, "r": 8}
"""Memory per CPU, in GiB, of the families for compute (c), general use (m) and memory (r)."""
_KUBE_RESERVED: Final = 255 + 11 * 29
"""Least memory in MiB that EKS reserves for kubelet: 255, and 11 for each of the 29 pods that a
machine of size `large` can have. Larger machines have more pods (source: EKS, nodeadm)."""
_FEW_CPUS: Final = 32
"""Machines of the families c, m and r with at most this many CPUs have no Elastic Fabric
Adapter."""
_MOST_ADAPTERS: Final = 2
"""Largest number of Elastic Fabric Adapters that a machine of the families c, m and r has."""
_SMALL: Final = dict.fromkeys(("xlarge", "2xlarge", "4xlarge"), (1, 0))
_MIDDLE: Final = dict.fromkeys(("8xlarge", "16xlarge"), (1, 1))
_G5: Final = {
    **_SMALL,
    **_MIDDLE,
    "12xlarge": (4, 1),
    "24xlarge": (4, 1),
    "48xlarge": (8, 1),
}
_CARDS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "g4ad": {**_SMALL, "8xlarge": (2, 0), "16xlarge": (4, 0)},
    "g4dn": {**_SMALL, **_MIDDLE, "12xlarge": (4, 1), "metal": (8, 1)},
    "g5": _G5,
    "g6": _G5,
    "g6e": {**_G5, "24xlarge": (4, 2), "48xlarge": (8, 4)},
    "g7": {**_SMALL, "8xlarge": (1, 1), "12xlarge": (2, 1), "24xlarge": (4, 1), "48xlarge": (8, 2)},
    "g7e": {
        **_SMALL,
        "8xlarge": (1, 1),
        "12xlarge": (2, 1),
        "24xlarge": (4, 2),
        "48xlarge": (8, 4),
    },
    "gr6": {"4xlarge": (1, 0), "8xlarge": (1, 1)},
    "p3": {"2xlarge": (1, 0), "8xlarge": (4, 0), "16xlarge": (8, 0)},
    "p3dn": {"24xlarge": (8, 1)},
    "p4d": {"24xlarge": (8, 4)},
    "p4de": {"24xlarge": (8, 4)},
    "p5": {"4xlarge": (1, 1), "48xlarge": (8, 32)},
    "p5e": {"48xlarge": (8, 32)},
    "p5en": {"48xlarge": (8, 16)},
    "p6-b200": {"48xlarge": (8, 8)},
    "p6-b300": {"48xlarge": (8, 16)},
}
"""Numbers of GPUs and of Elastic Fabric Adapters, by family and size (sources: EC2, instance types,
accelerated computing; EC2, maximum network cards)."""


def cpus(type_: str) -> int | None:
    """Return the largest number of CPUs that a type can have: 4 for `xlarge`, 4·n for `nxlarge`.

    Return None if the type's name does not show the number.
    """
    match = _SIZE.fullmatch(type_)
    if match is None:
        return None
    return _CPUS.get(type_) or (2 if type_.endswith(".large") else 4 * int(match["size"] or 1))


def memory(type_: str) -> int | None:
    """Return the memory in GiB, or None if the type's name does not show it."""
    family, number = type_.partition(".")[0], cpus(type_)
    known = _is_general(family) and "n" not in family
    return number * _GIB[family[0]] if known and number else None


def reserved(gib: int) -> int:
    """Return, in MiB, the least part of a machine's memory that is never available to pods."""
    return least_overhead(gib * 1024) + _KUBE_RESERVED


def gpus(type_: str) -> int | None:
    """Return the number of GPUs, or None if it is not known."""
    found = _cards(type_)
    return found and found[0]


def adapters(type_: str) -> int | None:
    """Return the largest number of Elastic Fabric Adapters, or None if it is not known."""
    found = _cards(type_)
    if found or not _is_general(type_):
        return found and found[1]
    number = cpus(type_)
    return 0 if number and number <= _FEW_CPUS else _MOST_ADAPTERS


def _cards(type_: str) -> tuple[int, int] | None:
    family, _, size = type_.partition(".")
    return _CARDS.get(family, {}).get(size)


def _is_general(family: str) -> bool:
    return family[0] in _GIB and family[1:2].isdigit()
