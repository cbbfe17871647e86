"""Find the GPUs of a node, and describe them in lines of gres.conf.

In a container, GPUs keep the numbers that they have on the machine. For example, a container may
have only `/dev/nvidia3` and `/dev/nvidia5`. So this module searches for the device files, and does
not assume their numbers.

The device files show neither the cores near a GPU nor the links between GPUs. Slurm reads both from
the GPU vendor's library, if the driver provides the library and the image has Slurm's plugin for
it. Otherwise, this module finds the cores in /sys.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_AMD_COMMON: Final = "dev/kfd"
"""File of the kernel's driver for AMD GPUs (amdkfd). Every program opens this file in addition to
the files of its GPUs."""
_LAST_COMMON: Final = 2
"""Highest number of a file in /dev/nvidia-caps that is not for a slice: the files 1 and 2 configure
and monitor MIG."""
_PROFILE: Final = r"\d+g\.\d+gb.*"
"""Pattern of NVIDIA's MIG profiles, such as `1g.10gb` and `1g.10gb+me`."""

_DETECTORS: Final = {
    "nvml": ("gpu_nvml.so", "libnvidia-ml.so.1"),
    "rsmi": ("gpu_rsmi.so", "librocm_smi64.so.*"),
}
"""Slurm's plugin and the library that the plugin loads, for each value of AutoDetect. Debian has
each plugin in a separate package (slurm-wlm-nvml-plugin, slurm-wlm-rsmi-plugin)."""

_NO_DETECTOR: Final = "off"

Cores = Callable[[Iterable[int]], Iterable[int]]
"""Function that maps the machine's CPU numbers to Slurm's core numbers."""


@dataclass(frozen=True)
class Gpu:
    """GPU or MIG slice, and the machine's CPUs near it."""

    files: tuple[str, ...]
    """Device files that a job needs to use the GPU. Other jobs must not open them."""
    cpus: tuple[int, ...] = ()
    """CPUs near the GPU. Empty if the machine does not report them."""


def lines(gres: str, root: Path, cores: Cores) -> list[str]:
    """Return the lines of gres.conf for the GPUs in the file system `root`.

    `gres` is the node's setting, such as `gpu:h100:8,shard:16`, or `gpu:1g.10gb:7` for MIG slices.
    Without this setting, return no lines.
    """
    if not gres:
        return []
    wanted = [word.split(":") for word in gres.split(",")]
    kinds = [word[1] for word in wanted if word[0] == "gpu"]
    shards = [word[1] for word in wanted if word[0] == "shard"]
    sliced = any(re.fullmatch(_PROFILE, kind) for kind in kinds)
    found = _slices(root) if sliced else _whole(root)
    detector = _detector(root) if found else _NO_DETECTOR
    if sliced and len(kinds) > 1:
        # The device files do not show the profile of a slice. Only the vendor's library reports it.
        return [f"AutoDetect={detector}"]
    near = cores if detector == _NO_DETECTOR else (lambda _: ())
    return [
        f"AutoDetect={detector}",
        *(_line(kind, gpu, near) for kind in kinds for gpu in found),
        *(f"Name=shard Count={count}" for count in shards if found),
    ]


def _detector(root: Path) -> str:
    for name, (plugin, library) in _DETECTORS.items():
        if all(any(root.glob(f"usr/lib/*/{file}")) for file in (f"slurm-wlm/{plugin}", library)):
            return name
    return _NO_DETECTOR


def _line(kind: str, gpu: Gpu, cores: Cores) -> str:
    key = "File" if len(gpu.files) == 1 else "MultipleFiles"
    near = sorted(cores(gpu.cpus))
    where = f" Cores={','.join(map(str, near))}" if near else ""
    return f"Name=gpu Type={kind} {key}={','.join(gpu.files)}{where}"


def _whole(root: Path) -> list[Gpu]:
    nvidia = _numbered(root / "dev", "nvidia")
    if nvidia:
        near = dict(_near_nvidia(root))
        return [Gpu((f"/dev/{path.name}",), near.get(n, ())) for n, path in nvidia]
    if not (root / _AMD_COMMON).exists():
        return []
    return [
        Gpu((f"/dev/dri/{path.name}",), _near(root / "sys/class/drm" / path.name / "device"))
        for _, path in _numbered(root / "dev/dri", "renderD")
    ]


def _numbered(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    names = (re.fullmatch(rf"{prefix}(\d+)", path.name) for path in folder.glob(f"{prefix}*"))
    return sorted((int(name[1]), folder / name[0]) for name in names if name)


def _near_nvidia(root: Path) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the number of each GPU's device file, with the CPUs near the GPU."""
    for folder in (root / "proc/driver/nvidia/gpus").glob("*"):
        text = (folder / "information").read_text()
        if minor := re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE):
            yield int(minor[1]), _near(root / "sys/bus/pci/devices" / folder.name)


def _near(device: Path) -> tuple[int, ...]:
    file = device / "local_cpulist"
    return tuple(numbers(file.read_text().strip())) if file.exists() else ()


def numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list in the kernel's format, such as `0-3,8`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            yield from range(int(first), int(last or first) + 1)


def _slices(root: Path) -> list[Gpu]:
    """Return the MIG slices whose GPU instance and compute instance both have device files."""
    near = dict(_near_nvidia(root))
    capabilities = root / "proc/driver/nvidia/capabilities"
    found = []
    for compute in sorted(capabilities.glob("gpu*/mig/gi*/ci*")):
        gpu = int(compute.parents[2].name.removeprefix("gpu"))
        files = (f"/dev/nvidia{gpu}", _capability(compute.parent), _capability(compute))
        if all((root / file.lstrip("/")).exists() for file in files):
            found.append(Gpu(files, near.get(gpu, ())))
    return found or _slices_of_one_gpu(root)


def _slices_of_one_gpu(root: Path) -> list[Gpu]:
    """Return the MIG slices of a single GPU from the numbers of the device files.

    The number of each compute instance directly follows the number of its GPU instance.
    """
    gpus = _numbered(root / "dev", "nvidia")
    capabilities = _numbered(root / "dev/nvidia-caps", "nvidia-cap")
    files = [f"/dev/nvidia-caps/{path.name}" for n, path in capabilities if n > _LAST_COMMON]
    if len(gpus) != 1 or len(files) % 2:
        return []
    whole = f"/dev/{gpus[0][1].name}"
    return [Gpu((whole, *files[n : n + 2])) for n in range(0, len(files), 2)]


def _capability(instance: Path) -> str:
    text = (instance / "access").read_text()
    minor = re.search(r"^DeviceFileMinor:\s*(\d+)", text, re.MULTILINE)
    return f"/dev/nvidia-caps/nvidia-cap{minor[1] if minor else ''}"
