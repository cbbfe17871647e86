"""Prepare a node before slurmd starts, and report which resources the node can limit for jobs.

`python3 -BS -m agents.node` runs as root with SYS_ADMIN in slurmd's container, and prints one line.
It reads these environment variables:

    NODE_SHAPE        parameters of the node, in the format of slurm.conf
    NODE_NAME         name of the node, which ends with its number in the nodeset
    NODE_CONF         empty if slurm.conf lists the node
    PODS_ONLY         not empty if no jobs of users run on the node

It writes these files to `FOLDER`, if the node needs them:

    layout            parameters that NODE_SHAPE lacks, for a dynamic node
    topology.xml      the machine that hwloc shows to Slurm
    slurm.conf        lines that this node adds to the shared slurm.conf (images/worker/preload.c)
    cgroup.conf       lines that this node adds to the shared cgroup.conf
    gres.conf         replaces the shared gres.conf
    gpu0, gpu1, …     stand for GPUs that only pods use
    unconfined        resources that the node cannot limit for jobs, and the reasons
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agents import bpf, cgroups, cpus, gpus
from agents.cgroups import CPUS, DEVICES, MEMORY, PROCESSES, SWAP, USE, Cgroups

FOLDER: Final = Path("/run/slurmstack/node")
_CPUS: Final = Path("/sys/devices/system/cpu")
_CONSTRAINTS: Final = {
    CPUS: "ConstrainCores",
    MEMORY: "ConstrainRAMSpace",
    SWAP: "ConstrainSwapSpace",
    DEVICES: "ConstrainDevices",
}
_LAYOUT: Final = ("sockets", "corespersocket", "threadspercore")


@dataclass(frozen=True)
class Machine:
    """Machine, from the view of a node's container."""

    root: Path
    """File system with the devices and the kernel's files about them."""
    usable: list[cpus.Cpu]
    """CPUs that the container may use."""
    number: int
    """Number of the machine's CPUs."""


def prepare(
    shape: str, place: int, found: Cgroups, machine: Machine, *, is_listed: bool = False
) -> dict[str, str]:
    """Return a node's files by name. Add to `found` the resources that the node cannot limit.

    `place` is the node's number in its nodeset. If slurm.conf lists the node, slurm.conf also
    defines the layout of the CPUs. Slurm's default layout is one socket per CPU (source:
    slurm.conf(5), Sockets).
    """
    words = _words(shape)
    gres = words.get("gres", "")
    try:
        own = cpus.choose(machine.usable, int(words["cpus"]), place)
    except ValueError as why:
        found.lack((CPUS,), str(why))
        return overrides(found, gpus.lines(gres, machine.root, lambda _: ()), binds=False)
    real = cpus.arrange(own)
    declared = _declared(words)
    layout = declared or (cpus.Layout(len(own), 1, 1) if is_listed else real)
    files = overrides(found, gpus.lines(gres, machine.root, _cores(own, layout)), binds=True)
    if not declared and not is_listed:
        files["layout"] = layout.words()
    if len(own) < machine.number or layout != real:
        files["topology.xml"] = cpus.topology(own, layout)
    return files


def prepare_for_pods(shape: str, folder: Path) -> None:
    """Write the files of a node that only holds resources for pods.

    A job has a process on such a node, but the process needs no resources. So the node confines
    nothing, and starts no step for processes that join a job. The kubelet gives the GPUs to pods.
    slurmd counts only GPUs with a device file, so each has a link to a device that all may use.
    """
    gres = _words(shape).get("gres", "")
    _, kind, count = gres.split(":") if gres else ("gpu", "", "0")
    gpus = [folder / f"gpu{number}" for number in range(int(count))]
    files = {
        "slurm.conf": "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        "JobAcctGatherType=jobacct_gather/none\nPrologFlags=Alloc\n",
        "cgroup.conf": "CgroupPlugin=disabled\n",
        "gres.conf": "".join(f"Name=gpu Type={kind} File={gpu}\n" for gpu in gpus),
    }
    write(files, folder)
    for gpu in gpus:
        gpu.symlink_to("/dev/null")


def _cores(own: list[cpus.Cpu], layout: cpus.Layout) -> gpus.Cores:
    core_of = {cpu.number: n // layout.threads for n, cpu in enumerate(own)}

    def cores(numbers: Iterable[int]) -> Iterable[int]:
        """Return the cores near these CPUs, or none if all cores are near."""
        near = {core_of[number] for number in numbers if number in core_of}
        return near if near != {*core_of.values()} else ()

    return cores


def _words(shape: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shape.split())
    return {name.lower(): value for name, _, value in pairs}


def _declared(words: Mapping[str, str]) -> cpus.Layout | None:
    if not any(key in words for key in _LAYOUT):
        return None
    return cpus.Layout(*(int(words.get(key, 1)) for key in _LAYOUT))


def overrides(found: Cgroups, gres: list[str], *, binds: bool) -> dict[str, str]:
    """Return the contents of Slurm's files by name. Without `binds`, do not bind tasks to CPUs."""
    if PROCESSES in found.missing:
        plugins = "task/affinity" if binds else "task/none"
        lines = ["ProctrackType=proctrack/linuxproc", f"TaskPlugin={plugins}"]
        constraints = ["CgroupPlugin=disabled"]
    else:
        lines = [] if binds else ["TaskPlugin=task/cgroup"]
        missing = (key for thing, key in _CONSTRAINTS.items() if thing in found.missing)
        constraints = [f"{key}=no" for key in missing]
    if {PROCESSES, USE} & found.missing.keys():
        lines.append("JobAcctGatherType=jobacct_gather/linux")
    files = {"slurm.conf": lines, "cgroup.conf": constraints, "gres.conf": gres}
    return {name: "".join(f"{line}\n" for line in these) for name, these in files.items() if these}


def write(files: Mapping[str, str], folder: Path) -> None:
    """Replace the contents of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)


def main() -> None:
    if os.environ.get("PODS_ONLY"):
        print("the node only holds resources for pods, and confines no jobs")
        prepare_for_pods(os.environ["NODE_SHAPE"], FOLDER)
        return
    name = os.environ["NODE_NAME"]
    calls = cgroups.Calls(cgroups.remount, bpf.load_guard)
    found = cgroups.prepare(cgroups.ROOT, cgroups.PROC, calls, name)
    usable = cpus.of_machine(_CPUS, os.sched_getaffinity(0))
    place = int(name.rpartition("-")[2])
    machine = Machine(Path("/"), usable, os.cpu_count() or 1)
    is_listed = not os.environ["NODE_CONF"]
    files = prepare(os.environ["NODE_SHAPE"], place, found, machine, is_listed=is_listed)
    if found.unconfined():
        files["unconfined"] = str(found)
    print(found)
    write(files, FOLDER)


if __name__ == "__main__":
    main()
