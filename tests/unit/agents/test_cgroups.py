"""Cgroups of both versions are prepared, and missing limits are reported."""

import os
from pathlib import Path

import pytest

from agents.cgroups import (
    CPUS,
    DEVICES,
    MEMORY,
    NUMBER,
    SCOPE,
    SWAP,
    Calls,
    Cgroups,
    prepare,
)

NODE = "cpu-0"
JOBS = SCOPE.format(node=NODE)
NO_SWAP = "Filename\tType\tSize\tUsed\tPriority\n"
SOME_SWAP = NO_SWAP + "/swapfile\tfile\t1048572\t0\t-2\n"
V1 = ("freezer", "cpuset", "memory", "devices", "cpuacct", "pids")
SWAP_OF_V1 = "memory/memory.memsw.limit_in_bytes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "cgroup"
    made.mkdir()
    return made


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """/proc of a machine with swap and a limit of 4,000 processes."""
    made = tmp_path / "proc"
    (made / "sys/kernel").mkdir(parents=True)
    (made / "sys/kernel/pid_max").write_text("4000\n")
    (made / "swaps").write_text(SOME_SWAP)
    return made


def own(group: Path) -> Path:
    """Return a cgroup that contains this process."""
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    return group


def version_1(root: Path) -> Path:
    for name in V1:
        own(root / name)
    (root / SWAP_OF_V1).touch()
    return root


def version_2(root: Path, controllers: str = "cpuset cpu io memory hugetlb pids") -> Path:
    own(root)
    (root / "cgroup.controllers").write_text(f"{controllers}\n")
    (root / "system").mkdir()
    (root / "system/memory.swap.max").write_text("max\n")
    (root / "system/cgroup.procs").write_text(f"{os.getpid()}\n")
    (root / "memory.oom.group").write_text("1\n")
    return root


def nothing(*_: object) -> None:
    pass


ANY = Calls(nothing, nothing)
"""Kernel that accepts all calls."""


def test_preparation_of_cgroup_v1_makes_each_hierarchy_writable(root: Path, proc: Path) -> None:
    remounted: list[Path] = []

    found = prepare(version_1(root), proc, Calls(remounted.append, nothing), NODE)

    assert sorted(path.name for path in remounted) == sorted(V1)
    assert found.missing == {}
    assert str(found) == (
        "cgroups of version 1: jobs can be confined to their CPUs, memory, swap, devices "
        "and number of processes"
    )


def test_preparation_of_cgroup_v2_moves_processes_and_enables_controllers(
    root: Path, proc: Path
) -> None:
    remounted: list[Path] = []

    found = prepare(version_2(root), proc, Calls(remounted.append, nothing), NODE)

    assert remounted == [root]
    assert found.missing == {}
    assert (root / "system/cgroup.procs").read_text() == str(os.getpid())
    for group in (root, root / "system.slice", root / JOBS, root / "slurmstepd"):
        wanted = (group / "cgroup.subtree_control").read_text()
        assert wanted == "+cpuset +memory +cpu +pids"
    assert (root / "memory.oom.group").read_text() == "0"


@pytest.mark.parametrize("version", [version_1, version_2])
def test_jobs_cannot_open_the_directories_that_slurm_locks(
    root: Path, proc: Path, version: object
) -> None:
    assert callable(version)
    prepare(version(root), proc, ANY, NODE)

    locked = [root / JOBS] if version is version_2 else [root / name for name in V1]
    assert {path.stat().st_mode & 0o777 for path in locked} == {0o711}


@pytest.mark.parametrize(
    ("version", "group"), [(version_1, "memory/slurmstepd"), (version_2, "slurmstepd")]
)
def test_slurmstepd_has_a_cgroup_outside_the_cgroup_of_its_job(
    root: Path, proc: Path, version: object, group: str
) -> None:
    assert callable(version)
    prepare(version(root), proc, ANY, NODE)

    assert (root / group).is_dir()


def test_all_jobs_together_may_use_a_quarter_of_pid_max(root: Path, proc: Path) -> None:
    prepare(version_1(root), proc, ANY, NODE)

    assert (root / "pids/slurm/pids.max").read_text() == "1000"


def test_second_start_works_after_the_first_moved_the_processes(root: Path, proc: Path) -> None:
    prepare(version_2(root), proc, ANY, NODE)
    (root / "cgroup.procs").write_text("")

    assert not prepare(root, proc, ANY, NODE).missing


def test_other_limits_work_if_a_controller_is_missing(root: Path, proc: Path) -> None:
    found = prepare(version_2(root, "cpu memory pids"), proc, ANY, NODE)

    assert found.missing.keys() == {"CPUs"}
    assert str(found) == (
        "cgroups of version 2: jobs can be confined to their memory, swap, devices and number of "
        "processes; jobs cannot be confined to their CPUs: the cgroup controller 'cpuset' is "
        "missing; configure the container runtime to delegate it"
    )


def test_message_names_no_resources_if_cgroups_can_limit_none() -> None:
    found = Cgroups(1, {MEMORY: "no hierarchy", **dict.fromkeys((CPUS, SWAP, DEVICES, NUMBER), "")})

    assert str(found) == (
        "cgroups of version 1: Slurm can find the processes of jobs, but cannot limit their "
        "resources; jobs cannot be confined to their memory: no hierarchy"
    )


def test_usage_is_not_accounted_if_the_memory_hierarchy_is_missing(root: Path, proc: Path) -> None:
    version_1(root)
    (root / SWAP_OF_V1).unlink()
    (root / "memory/cgroup.procs").unlink()
    (root / "memory").rmdir()

    found = prepare(root, proc, ANY, NODE)

    assert found.missing.keys() == {"memory", "swap", "use of resources"}
    expected = (
        f"jobs cannot be confined to their memory: {root / 'memory'} is missing; "
        "enable the cgroup hierarchy 'memory'"
    )
    assert expected in str(found)


def test_unlimited_swap_is_reported_only_if_swap_exists(root: Path, proc: Path) -> None:
    version_1(root)
    (root / SWAP_OF_V1).unlink()

    some = prepare(root, proc, ANY, NODE)
    (proc / "swaps").write_text(NO_SWAP)
    none = prepare(root, proc, ANY, NODE)

    assert some.missing.keys() == none.missing.keys() == {"swap"}
    assert some.unconfined() == {
        "swap": "the kernel limits no swap; start the machine with swapaccount=1"
    }
    assert none.unconfined() == {}
    assert str(none).endswith("confined to their CPUs, memory, devices and number of processes")


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_devices_are_unconfined_if_the_kernel_rejects_the_bpf_program(
    root: Path, proc: Path
) -> None:
    found = prepare(version_2(root), proc, Calls(nothing, refuse), NODE)

    assert found.missing.keys() == {"devices"}
    assert "cannot be confined to their devices: the kernel rejects the BPF program" in str(found)


def test_unwritable_cgroup_does_not_fail_the_start(root: Path, proc: Path) -> None:
    version_2(root)
    (root / "system.slice").write_text("no folder")

    found = prepare(root, proc, ANY, NODE)

    assert found.missing.keys() >= {"processes"}


def no_cgroups(root: Path) -> Path:
    return root


def groups_of_others(root: Path) -> Path:
    own(root / "freezer")
    (root / "freezer/cgroup.procs").write_text("1\n")
    return root


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (no_cgroups, "{root} contains no cgroups: enable cgroups in the kernel of the machine"),
        (
            groups_of_others,
            "{root}/freezer is not the container's own cgroup",
        ),
        (version_1, "cannot make {root}/freezer writable"),
        (version_2, "cannot make {root} writable"),
    ],
)
def test_jobs_are_unconfined_if_cgroups_cannot_be_created(
    root: Path, proc: Path, made: object, why: str
) -> None:
    assert callable(made)
    found = prepare(made(root), proc, Calls(refuse, nothing), NODE)

    assert why.format(root=root) in str(found)
    assert "jobs cannot be confined: " in str(found)
    assert found.missing.keys() >= {"processes"}
