"""Choose a Slurm node's CPUs from the CPUs of its machine, and describe them to Slurm.

Slurm numbers a node's CPUs from 0, by sockets and cores, and assumes that the node has the whole
machine. But a container may have only some CPUs, which the kubelet's CPU manager chose. A container
may also have more CPUs than its node needs. In that case, the machine's nodes divide the CPUs.

Slurm uses hwloc to examine the machine. So this module writes the description of a different
machine, which hwloc reads (variable HWLOC_XMLFILE). In this description, the node's CPUs come
first, with their numbers on the real machine. Slurm ignores a CPU whose number is not below the
number of all CPUs (source: xcpuinfo.c, Slurm 24.11). So at the end of the description, the module
adds CPUs that do not exist: as many as Slurm needs to accept all of the node's CPUs.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

_HEADER: Final = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'


@dataclass(frozen=True, order=True)
class Cpu:
    """CPU of the machine. CPUs are sorted by package, NUMA node, core and number."""

    package: int
    numa: int
    core: int
    """Number of the core, unique within the package."""
    number: int
    """Number that the kernel gives the CPU."""

    def of_core(self) -> tuple[int, int]:
        return self.package, self.core


@dataclass(frozen=True)
class Layout:
    """Arrangement of a node's CPUs, the same in every socket and core."""

    sockets: int
    cores: int
    """Cores of each socket."""
    threads: int
    """Threads of each core."""

    def words(self) -> str:
        """Return the layout as parameters of slurm.conf."""
        return f"Sockets={self.sockets} CoresPerSocket={self.cores} ThreadsPerCore={self.threads}"


def of_machine(root: Path, numbers: Iterable[int]) -> list[Cpu]:
    """Return sorted CPUs, read from the kernel's files in `root` (/sys/devices/system/cpu)."""
    return sorted(_described(root / f"cpu{number}", number) for number in numbers)


def _described(folder: Path, number: int) -> Cpu:
    topology = folder / "topology"
    package = int((topology / "physical_package_id").read_text())
    nodes = [int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*")]
    return Cpu(
        package=max(package, 0),  # -1 if the machine does not report it
        numa=min(nodes, default=0),
        core=int((topology / "core_id").read_text()),
        number=number,
    )


def choose(usable: Sequence[Cpu], wanted: int, place: int) -> list[Cpu]:
    """Choose a node's CPUs. Raises ValueError if there are too few.

    `place` is the node's number in its nodeset. If the container may use more CPUs than the node
    needs, the node skips the CPUs of nodes with lower numbers. So the nodes of a machine share few
    CPUs.
    """
    if len(usable) < wanted:
        raise ValueError(
            f"the node needs {wanted} CPUs, but its container can use only {len(usable)}; "
            "lower 'nodesets[].cpus' of its nodeset"
        )
    first = place * wanted % len(usable)
    return sorted(islice((*usable[first:], *usable), wanted))


def arrange(cpus: Sequence[Cpu]) -> Layout:
    """Return the layout of CPUs.

    If cores differ in their number of CPUs, treat each CPU as a core. If sockets differ, treat all
    CPUs as one socket.
    """
    threads = _same(Counter(cpu.of_core() for cpu in cpus).values())
    sockets = Counter(cpu.package for cpu in cpus)
    if threads is None:
        threads = 1
    if _same(sockets.values()) is None:
        return Layout(1, len(cpus) // threads, threads)
    return Layout(len(sockets), len(cpus) // len(sockets) // threads, threads)


def _same(numbers: Iterable[int]) -> int | None:
    different = {*numbers}
    return different.pop() if len(different) == 1 else None


def topology(cpus: Sequence[Cpu], layout: Layout) -> str:
    """Describe a machine, whose first CPUs are `cpus`, in hwloc's XML (version 2).

    The number of sockets follows from the number of CPUs; `layout.sockets` is not used.
    """
    per_socket = layout.cores * layout.threads
    numbers = [cpu.number for cpu in cpus]
    missing = max(0, max(numbers) + 1 - len(numbers))
    sockets = -(-missing // per_socket)
    numbers += islice(count(max(numbers) + 1), sockets * per_socket)
    machine = _object("Machine", numbers, 0)
    _inside(machine, "NUMANode", numbers, 0)
    for n, socket in enumerate(_parts(numbers, per_socket)):
        package = _inside(machine, "Package", socket, n)
        for m, core in enumerate(_parts(socket, layout.threads)):
            inner = _inside(package, "Core", core, m)
            for number in core:
                _inside(inner, "PU", [number], number)
    root = ET.Element("topology", version="2.0")
    root.append(machine)
    return _HEADER + ET.tostring(root, encoding="unicode", short_empty_elements=False) + "\n"


def _parts(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def _inside(parent: ET.Element, kind: str, numbers: Sequence[int], index: int) -> ET.Element:
    made = _object(kind, numbers, index)
    parent.append(made)
    return made


def _object(kind: str, numbers: Iterable[int], index: int) -> ET.Element:
    cpus = _mask(numbers)
    sets = {
        "cpuset": cpus,
        "complete_cpuset": cpus,
        **({"allowed_cpuset": cpus} if kind == "Machine" else {}),
        "nodeset": _mask([0]),
        "complete_nodeset": _mask([0]),
        **({"allowed_nodeset": _mask([0])} if kind == "Machine" else {}),
    }
    return ET.Element("object", {"type": kind, "os_index": str(index), **sets})


def _mask(numbers: Iterable[int]) -> str:
    """Return a set of numbers in hwloc's format: words of 32 bits, the highest word first."""
    bits = sum(1 << number for number in {*numbers})
    words: list[str] = []
    while bits or not words:
        words.append(f"0x{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))
