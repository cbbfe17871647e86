"""The files for slurmd depend on the node's machine and its CPUs."""

from pathlib import Path

import pytest

from agents.cgroups import CPUS, MEMORY, PROCESSES, SWAP, USE, Cgroups
from agents.cpus import Cpu
from agents.node import Machine, prepare, prepare_for_pods, write

TWO = [Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1)]
NOTHING = Path("/nonexistent")
WHOLE = Machine(NOTHING, TWO, 2)
PART = Machine(NOTHING, TWO, 4)
CONF = "CPUs=2 RealMemory=900 Feature=cpu"
NO_CGROUPS = {
    "slurm.conf": (
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\n"
        "JobAcctGatherType=jobacct_gather/linux\n"
    ),
    "cgroup.conf": "CgroupPlugin=disabled\n",
}


def test_node_with_a_whole_machine_needs_only_the_layout_file() -> None:
    found = Cgroups(1)

    assert prepare(CONF, 0, found, WHOLE) == {
        "layout": "Sockets=1 CoresPerSocket=2 ThreadsPerCore=1"
    }
    assert found.unconfined() == {}


def test_settings_override_the_layout() -> None:
    files = prepare(f"{CONF} ThreadsPerCore=2", 0, Cgroups(1), PART)

    assert "layout" not in files
    assert prepare(f"{CONF} CoresPerSocket=2", 0, Cgroups(1), WHOLE) == {}
    assert '<object type="Core" os_index="0" cpuset="0x00000003"' in files["topology.xml"]


def test_node_listed_in_slurm_conf_has_one_socket_per_cpu() -> None:
    files = prepare(CONF, 0, Cgroups(1), WHOLE, is_listed=True)
    configured = prepare(f"{CONF} Sockets=1 CoresPerSocket=2", 0, Cgroups(1), WHOLE, is_listed=True)

    assert files.keys() == {"topology.xml"}
    assert '<object type="Package" os_index="1" cpuset="0x00000002"' in files["topology.xml"]
    assert configured == {}


def test_node_with_part_of_a_machine_gets_a_topology() -> None:
    assert "topology.xml" in prepare(CONF, 0, Cgroups(1), PART)


def test_node_with_more_cpus_than_its_container_binds_no_tasks() -> None:
    found = Cgroups(1)

    files = prepare("CPUs=8", 0, found, WHOLE)

    assert files == {"slurm.conf": "TaskPlugin=task/cgroup\n", "cgroup.conf": "ConstrainCores=no\n"}
    assert found.unconfined() == {
        CPUS: (
            "the node needs 8 CPUs, but its container can use only 2; lower 'nodesets[].cpus' of "
            "its nodeset"
        )
    }


def test_cores_of_a_gpu_are_numbered_as_in_slurm(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia3").touch()
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Device Minor: 3\n")
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "local_cpulist").write_text("6-7\n")
    cpus = [Cpu(0, 0, core, core) for core in (5, 6)]

    files = prepare(f"{CONF} Gres=gpu:l4:1", 0, Cgroups(1), Machine(tmp_path, cpus, 8))

    assert files["gres.conf"] == "AutoDetect=off\nName=gpu Type=l4 File=/dev/nvidia3 Cores=1\n"


@pytest.mark.parametrize(
    ("missing", "overrides"),
    [
        ((), {}),
        ((CPUS,), {"cgroup.conf": "ConstrainCores=no\n"}),
        ((MEMORY, SWAP), {"cgroup.conf": "ConstrainRAMSpace=no\nConstrainSwapSpace=no\n"}),
        ((USE,), {"slurm.conf": "JobAcctGatherType=jobacct_gather/linux\n"}),
        ((PROCESSES,), NO_CGROUPS),
        ((PROCESSES, CPUS, MEMORY), NO_CGROUPS),
    ],
)
def test_configuration_disables_limits_without_a_cgroup_controller(
    missing: tuple[str, ...], overrides: dict[str, str]
) -> None:
    found = Cgroups(1)
    found.lack(missing, "why")

    files = prepare(CONF, 0, found, WHOLE)

    assert {name: text for name, text in files.items() if name != "layout"} == overrides


def test_node_that_runs_only_pods_counts_gpus_that_it_does_not_have(tmp_path: Path) -> None:
    for _ in range(2):
        prepare_for_pods("CPUs=8 Gres=gpu:h100:4", tmp_path)

    lines = (tmp_path / "gres.conf").read_text().splitlines()
    words = [dict(word.split("=") for word in line.split()) for line in lines]
    assert [one["Type"] for one in words] == ["h100"] * 4
    assert len({one["File"] for one in words}) == 4
    assert all(Path(one["File"]).is_char_device() for one in words), "slurmd counts no other files"
    assert "ProctrackType=proctrack/linuxproc" in (tmp_path / "slurm.conf").read_text()


def test_node_that_runs_only_pods_may_have_no_gpus(tmp_path: Path) -> None:
    prepare_for_pods("CPUs=8", tmp_path)

    assert (tmp_path / "gres.conf").read_text() == ""


def test_files_of_an_earlier_start_are_replaced(tmp_path: Path) -> None:
    write({"slurm.conf": "a=b\n", "cgroup.conf": "c=d\n"}, tmp_path)
    write({"layout": "Sockets=1"}, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["layout"]
