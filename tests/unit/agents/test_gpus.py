"""Lines of gres.conf name the device files of GPUs. The numbers of these files may have gaps."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from agents.gpus import lines, numbers

NVIDIA = "proc/driver/nvidia"
OFF = "AutoDetect=off"


def nowhere(_: Iterable[int]) -> Iterable[int]:
    return ()


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def write(root: Path, path: str, text: str) -> None:
    touch(root, path)
    (root / path).write_text(text)


def test_gres_conf_lists_only_existing_device_files(tmp_path: Path) -> None:
    touch(tmp_path, *(f"dev/nvidia{n}" for n in ("5", "3", "10", "ctl", "-uvm", "-modeset")))

    assert lines("gpu:h100:3", tmp_path, nowhere) == [
        OFF,
        *(f"Name=gpu Type=h100 File=/dev/nvidia{n}" for n in (3, 5, 10)),
    ]


def test_gres_conf_lists_the_cores_near_each_gpu(tmp_path: Path) -> None:
    for minor, slot, near in ((3, "0000:3b:00.0", "0-1,4\n"), (5, "0000:d8:00.0", "2-3\n")):
        touch(tmp_path, f"dev/nvidia{minor}")
        text = f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n"
        write(tmp_path, f"{NVIDIA}/gpus/{slot}/information", text)
        write(tmp_path, f"sys/bus/pci/devices/{slot}/local_cpulist", near)

    assert lines("gpu:h100:2", tmp_path, lambda cpus: {cpu // 2 for cpu in cpus}) == [
        OFF,
        "Name=gpu Type=h100 File=/dev/nvidia3 Cores=0,2",
        "Name=gpu Type=h100 File=/dev/nvidia5 Cores=1",
    ]


LIBRARIES = "usr/lib/x86_64-linux-gnu"


def test_vendor_library_enables_autodetection(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidia3", f"{LIBRARIES}/slurm-wlm/gpu_nvml.so")
    files = ["Name=gpu Type=h100 File=/dev/nvidia3"]

    assert lines("gpu:h100:1", tmp_path, list) == [OFF, *files], (
        "Slurm's plugin needs the driver's library"
    )
    touch(tmp_path, f"{LIBRARIES}/libnvidia-ml.so.1")
    assert lines("gpu:h100:1", tmp_path, list) == ["AutoDetect=nvml", *files]


def test_autodetection_is_off_without_gpus(tmp_path: Path) -> None:
    touch(tmp_path, f"{LIBRARIES}/slurm-wlm/gpu_nvml.so", f"{LIBRARIES}/libnvidia-ml.so.1")

    assert lines("gpu:h100:1", tmp_path, nowhere) == [OFF]


def test_amd_gpus_are_found_as_render_nodes(tmp_path: Path) -> None:
    touch(tmp_path, "dev/kfd", "dev/dri/renderD129", "dev/dri/renderD131", "dev/dri/card1")
    write(tmp_path, "sys/class/drm/renderD131/device/local_cpulist", "8-9")

    assert lines("gpu:mi300x:2", tmp_path, list) == [
        OFF,
        "Name=gpu Type=mi300x File=/dev/dri/renderD129",
        "Name=gpu Type=mi300x File=/dev/dri/renderD131 Cores=8,9",
    ]


def test_render_node_without_kfd_is_not_a_gpu(tmp_path: Path) -> None:
    touch(tmp_path, "dev/dri/renderD128")

    assert lines("gpu:mi300x:1", tmp_path, nowhere) == [OFF]


def test_shards_are_listed_if_gpus_exist(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidia2")

    assert lines("gpu:l4:1,shard:4", tmp_path, nowhere) == [
        OFF,
        "Name=gpu Type=l4 File=/dev/nvidia2",
        "Name=shard Count=4",
    ]


@pytest.fixture
def sliced(tmp_path: Path) -> Path:
    """MIG slices 1 and 3 of GPU 0. The container lacks the files of the machine's slice 2."""
    touch(tmp_path, "dev/nvidia0")
    for instance, minors in ((1, (12, 13)), (2, (21, 22)), (3, (30, 31))):
        for folder, minor in zip((f"gi{instance}", f"gi{instance}/ci0"), minors, strict=True):
            text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 444\n"
            write(tmp_path, f"{NVIDIA}/capabilities/gpu0/mig/{folder}/access", text)
            if instance != 2:
                touch(tmp_path, f"dev/nvidia-caps/nvidia-cap{minor}")
    return tmp_path


def test_mig_slice_has_the_device_files_of_its_instances(sliced: Path) -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"

    assert lines("gpu:1g.10gb:2", sliced, nowhere) == [
        OFF,
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}12,{caps}13",
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}30,{caps}31",
    ]


def test_device_files_alone_identify_slices_of_a_single_gpu(tmp_path: Path) -> None:
    caps = "dev/nvidia-caps/nvidia-cap"
    touch(tmp_path, "dev/nvidia4", *(f"{caps}{minor}" for minor in (1, 2, 12, 13, 30, 31)))

    assert lines("gpu:1g.10gb:2", tmp_path, nowhere) == [
        OFF,
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia4,/{caps}12,/{caps}13",
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia4,/{caps}30,/{caps}31",
    ]


def test_slices_without_known_files_are_left_out(tmp_path: Path) -> None:
    """Slurm accepts only GPUs with a device file. So the node has fewer GPUs than configured."""
    touch(tmp_path, "dev/nvidia4", "dev/nvidia5", "dev/nvidia-caps/nvidia-cap12")

    assert lines("gpu:1g.10gb:2", tmp_path, nowhere) == [OFF]


def test_only_the_vendor_library_distinguishes_slices_of_several_profiles(sliced: Path) -> None:
    wanted = "gpu:1g.10gb:1,gpu:2g.20gb:1"

    assert lines(wanted, sliced, nowhere) == [OFF]
    touch(sliced, f"{LIBRARIES}/slurm-wlm/gpu_nvml.so", f"{LIBRARIES}/libnvidia-ml.so.1")
    assert lines(wanted, sliced, nowhere) == ["AutoDetect=nvml"]


def test_node_without_gpus_has_no_lines_in_gres_conf(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidia0")

    assert lines("", tmp_path, nowhere) == []


@pytest.mark.parametrize(("text", "found"), [("", []), ("3", [3]), ("0-2,7", [0, 1, 2, 7])])
def test_number_lists_of_the_kernel_are_parsed(text: str, found: list[int]) -> None:
    assert list(numbers(text)) == found
