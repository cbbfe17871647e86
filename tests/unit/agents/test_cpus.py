"""A node gets the right CPUs, and Slurm finds these CPUs in the topology."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agents.cpus import Cpu, Layout, arrange, choose, of_machine, topology


def machine(sockets: int, cores: int, threads: int) -> list[Cpu]:
    """Return CPUs, numbered as on most machines: the first thread of each core, then the second."""
    whole = sockets * cores
    return sorted(
        Cpu(socket, socket, core, thread * whole + socket * cores + core)
        for socket in range(sockets)
        for core in range(cores)
        for thread in range(threads)
    )


def numbered(cpus: list[Cpu]) -> list[int]:
    return [cpu.number for cpu in cpus]


def test_position_of_a_cpu_is_read_from_the_kernel(tmp_path: Path) -> None:
    for number, (package, core) in enumerate([(0, 0), (0, 1), (-1, 0)]):
        folder = tmp_path / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
        (folder / "topology/core_id").write_text(f"{core}\n")
        (folder / "node3").mkdir()

    assert of_machine(tmp_path, [2, 1]) == [Cpu(0, 3, 0, 2), Cpu(0, 3, 1, 1)]


@pytest.mark.parametrize(
    ("place", "chosen"), [(0, [0, 8, 1, 9]), (1, [2, 10, 3, 11]), (4, [0, 8, 1, 9])]
)
def test_nodes_on_the_same_machine_get_different_cores(place: int, chosen: list[int]) -> None:
    assert numbered(choose(machine(2, 4, 2), 4, place)) == chosen


def test_choice_of_cpus_wraps_around_after_the_last() -> None:
    assert numbered(choose(machine(1, 5, 1), 3, 1)) == [0, 3, 4]


def test_node_with_more_cpus_than_its_container_is_an_error() -> None:
    with pytest.raises(ValueError, match="the node needs 3 CPUs, but its container can use only 2"):
        choose(machine(1, 2, 1), 3, 0)


@pytest.mark.parametrize(
    ("cpus", "layout"),
    [
        (machine(2, 4, 2), Layout(2, 4, 2)),
        (machine(1, 2, 1), Layout(1, 2, 1)),
        # The kubelet's CPU manager may assign only one of a core's two threads.
        (machine(1, 4, 2)[:3], Layout(1, 3, 1)),
        # One core of the first socket and two of the second.
        (machine(2, 2, 2)[2:], Layout(1, 3, 2)),
    ],
)
def test_layout_is_the_same_in_each_socket(cpus: list[Cpu], layout: Layout) -> None:
    assert arrange(cpus) == layout


def slurms_map(xml: str, layout: Layout) -> dict[int, int]:
    """Return a mapping from Slurm's CPU numbers to the machine's, computed as in xcpuinfo.c of
    Slurm 24.11."""
    root = ET.fromstring(xml.partition('dtd">')[2]).find("object")  # noqa: S314  # our own text
    assert root is not None

    def inside(parent: ET.Element, kind: str) -> list[ET.Element]:
        """Return the parent's objects of one type, in hwloc's order."""
        found = parent.findall(f"object[@type='{kind}']")
        return sorted(found, key=lambda one: lowest(one.attrib["cpuset"]))

    units = [
        int(unit.attrib["os_index"])
        for package in inside(root, "Package")
        for core in inside(package, "Core")
        for unit in inside(core, "PU")
    ]
    found = dict(enumerate(range(len(units))))
    found |= {n: unit for n, unit in enumerate(units) if unit < len(units)}
    return {n: found[n] for n in range(layout.sockets * layout.cores * layout.threads)}


def lowest(mask: str) -> int:
    value = int("".join(word.removeprefix("0x") for word in mask.split(",")), 16)
    return (value & -value).bit_length()


@pytest.mark.parametrize(
    ("cpus", "layout"),
    [
        ([Cpu(0, 0, 3, 3), Cpu(0, 0, 11, 11)], Layout(1, 2, 1)),
        (machine(2, 48, 2)[4:], Layout(1, 94, 2)),
        (machine(2, 48, 2)[92:100], Layout(2, 2, 2)),
        (machine(1, 64, 2)[96:], Layout(1, 16, 2)),
        (machine(1, 4, 2)[:3], Layout(1, 3, 1)),
        (machine(2, 2, 1), Layout(2, 2, 1)),
    ],
)
def test_slurm_finds_each_cpu_by_its_number_on_the_machine(cpus: list[Cpu], layout: Layout) -> None:
    found = slurms_map(topology(cpus, layout), layout)

    assert sorted(found.values()) == sorted(numbered(cpus))


def test_threads_of_a_core_have_consecutive_numbers_in_slurm() -> None:
    cpus, layout = machine(2, 48, 2)[92:100], Layout(2, 2, 2)

    found = slurms_map(topology(cpus, layout), layout)

    assert [found[n] for n in range(8)] == [46, 142, 47, 143, 48, 144, 49, 145]
