"""Checks of GPUs, which read the output of nvidia-smi(1).

Since driver 450, the format of `nvidia-smi --query` has changed only in its sections and names. The
checks know the old and the new names. If a name is missing in the output, the GPU does not have
this feature. Numbers without a unit are counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.checks.judging import UnknownError, jobs, listed

_HEADER = re.compile(r"GPU ([0-9A-Fa-f]+:[0-9A-Fa-f:.]+)$")
_ATTACHED = re.compile(r"^Attached GPUs\s*: (\d+)$", re.MULTILINE)
_BROKEN = frozenset({"unknown error", "err!", "gpu requires reset", "gpu is lost"})
"""Values, in lower case, that nvidia-smi prints if the GPU does not answer."""
_DEAD = (
    "No devices were found",
    "couldn't communicate with the NVIDIA driver",
    "Failed to initialize NVML",
    "GPU is lost",
    "Unable to determine the device handle",
)
"""Parts of the messages that nvidia-smi prints instead of a report. Source: nvidia-smi(1), section
"Return value"."""
_MPS = "nvidia-cuda-mps-server"
"""Server of NVIDIA's Multi-Process Service. It is the only process that may use a GPU while no job
runs."""
_LINK = re.compile(r"^\s+Link (\d+): (.*)$")


@dataclass(frozen=True)
class Gpu:
    """One GPU of the report. The keys of `fields` are paths of headings and names in the report,
    such as `ECC Errors/Volatile/DRAM Uncorrectable`."""

    index: int
    bus: str
    fields: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.bus.partition(':')[2]})"

    def get(self, *paths: str) -> str:
        """Return the value of the first of these paths that the report contains, or ""."""
        return next((self.fields[path][0] for path in paths if path in self.fields), "")

    def number(self, *paths: str) -> float | None:
        """Return the value as a number without its unit, or None if it is not a number.

        Raises `UnknownError` if the GPU does not answer.
        """
        value = self.get(*paths)
        if is_broken(value):
            raise UnknownError(
                f"{self} does not answer: its value '{paths[0]}' is '{value}'; restart the machine"
            )
        try:
            return float(value.partition(" ")[0])
        except ValueError:
            return None

    def below(self, path: str) -> Iterator[str]:
        """Return the paths in the report that start with `path` and a slash."""
        return (found for found in self.fields if found.startswith(f"{path}/"))


def is_broken(value: str) -> bool:
    return value.strip("[] ").lower() in _BROKEN


def report(text: str) -> list[Gpu]:
    """Parse the output of `nvidia-smi --query`. Raises `UnknownError` for incomplete output."""
    attached = _ATTACHED.search(text)
    if not attached:
        raise UnknownError(f"nvidia-smi: {_first(text)}")
    found = list(_gpus(text))
    if len(found) != int(attached[1]):
        raise UnknownError(
            f"nvidia-smi reported only {len(found)} of {attached[1]} GPUs; restart the machine"
        )
    return found


def _gpus(text: str) -> Iterator[Gpu]:
    fields: dict[str, list[str]] = {}
    above: list[tuple[int, str]] = []
    count = 0
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            fields, above = {}, []
            yield Gpu(count, header[1], fields)
            count += 1
        elif line.startswith(" "):
            name, valued, value = line.partition(" :")
            indent = len(line) - len(line.lstrip())
            above = [(depth, path) for depth, path in above if depth < indent]
            path = "/".join((*(path for _, path in above[-1:]), name.strip()))
            above.append((indent, path))
            if valued:
                fields.setdefault(path, []).append(value.strip())


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")


# --- Checks --------------------------------------------------------------------------------------


def present(smi: str) -> str | None:
    """Check that the driver answers, and that no GPU requests a reset."""
    for line in smi.splitlines():
        if any(sentence in line for sentence in _DEAD):
            return line.strip()
    lost = (f"{gpu} {wrong}" for gpu in report(smi) if (wrong := _lost(gpu)))
    return listed(lost, "restart the machine")


def _lost(gpu: Gpu) -> str | None:
    if is_broken(gpu.get("Temperature/GPU Current Temp")) or is_broken(gpu.get("Product Name")):
        return "does not answer"
    if gpu.get("GPU Reset Status/Reset Required") == "Yes":
        return "requires a reset"
    if gpu.get("GPU Reset Status/Drain and Reset Recommended") == "Yes":
        return "requires a reset"
    action = gpu.get("GPU Recovery Action")
    return (
        f"requires the action '{action}', according to nvidia-smi"
        if action not in ("", "None", "N/A")
        else None
    )


def count(smi: str, *, count: int | None) -> str | None:
    """Check that the node has at least as many GPUs as the nodeset's settings say."""
    found = 0 if "No devices were found" in smi else len(report(smi))
    return (
        f"the node has {found} GPUs, expected {count}; restart or repair the machine"
        if count is not None and found < count
        else None
    )


def ecc(smi: str, *, max_uncorrectable: float) -> str | None:
    """Check that no GPU has had uncorrectable memory errors since the driver was loaded."""
    return listed(
        _ecc(report(smi), max_uncorrectable),
        "reset these GPUs, and replace a GPU whose errors return",
    )


def _ecc(gpus: Sequence[Gpu], most: float) -> Iterator[str]:
    for gpu in gpus:
        # GPUs older than Turing report no "Uncorrectable" errors. Their double-bit errors are
        # uncorrectable. Read only the total, so that no error is counted twice.
        uncorrectable = [
            gpu.number(path) or 0
            for path in gpu.below("ECC Errors/Volatile")
            if "Uncorrectable" in path or path.endswith("Double Bit/Total")
        ]
        if sum(uncorrectable) > most:
            yield (
                f"{gpu}: {sum(uncorrectable):.0f} uncorrectable memory errors, expected at most "
                f"{most:g}"
            )
        elif gpu.get("ECC Errors/Aggregate/SRAM Threshold Exceeded") == "Yes":
            yield f"{gpu}: errors in SRAM (on-chip memory) exceed NVIDIA's threshold"


def retired_pages(smi: str, *, max_pages: float) -> str | None:
    """Check that no memory page waits for retirement, and at most `max_pages` pages are retired.

    GPUs older than Ampere retire a faulty page of memory. They stop using the page after a reset.
    """
    return listed(_retired(report(smi), max_pages))


def _retired(gpus: Sequence[Gpu], most: float) -> Iterator[str]:
    for gpu in gpus:
        pages = sum(
            gpu.number(f"Retired Pages/{kind} Bit ECC") or 0 for kind in ("Single", "Double")
        )
        if gpu.get("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending") == "Yes":
            yield (
                f"{gpu}: faulty memory pages will be retired only after a reset: reset the GPU or "
                "restart the machine"
            )
        elif pages > most:
            yield (
                f"{gpu}: {pages:.0f} retired memory pages, expected at most {most:g}; replace the "
                "GPU"
            )


def row_remap(smi: str) -> str | None:
    """Check that no memory row waits for remapping, and that no remapping failed.

    Ampere and later GPUs replace a faulty row of memory by a spare row. The replacement takes
    effect after a reset.
    """
    return listed(f"{gpu}: {wrong}" for gpu in report(smi) if (wrong := _remap(gpu)))


def _remap(gpu: Gpu) -> str | None:
    if gpu.get("Remapped Rows/Remapping Failure Occurred") == "Yes":
        return "a faulty memory row could not be replaced by a spare row: replace the GPU"
    if gpu.get("Remapped Rows/Pending") != "Yes":
        return None
    return (
        "faulty memory rows will be replaced only after a reset: reset the GPU or restart the "
        "machine"
    )


_SLOWDOWNS = (
    "HW Slowdown/HW Thermal Slowdown",
    "HW Slowdown/HW Power Brake Slowdown",
    "HW Slowdown",
    "SW Thermal Slowdown",
)


def throttle(smi: str) -> str | None:
    """Check that neither heat nor lack of power slows a GPU down now."""
    return listed(_slowed(report(smi)), "check the cooling and the power of the machine")


def _slowed(gpus: Sequence[Gpu]) -> Iterator[str]:
    for gpu in gpus:
        for name in _SLOWDOWNS:
            # The report of drivers up to 525 has the heading "Clocks Throttle Reasons" instead.
            if (
                gpu.get(f"Clocks Event Reasons/{name}", f"Clocks Throttle Reasons/{name}")
                == "Active"
            ):
                reason = name.rpartition("/")[2]
                yield f"{gpu}: the GPU reduces its clocks because of '{reason}'"
                break


def nvlink(status: str, smi: str, *, links: int | None) -> str | None:
    """Check that all NVLink links are up, and that GPUs on an NVSwitch have joined its fabric.

    `links` is the required number of active links of each GPU. By default, this is the highest
    number of active links that any GPU of this node has. So a node on which no GPU has an active
    link passes by default.
    """
    gpus = report(smi)
    return listed(
        [*_fabric(gpus), *_links(status, gpus, links)],
        "check nvidia-fabricmanager, or restart the machine",
    )


def _fabric(gpus: Sequence[Gpu]) -> Iterator[str]:
    for gpu in gpus:
        state, outcome = gpu.get("Fabric/State"), gpu.get("Fabric/Status")
        if state not in ("", "N/A", "Completed") or outcome not in ("", "N/A", "Success"):
            yield (
                f"{gpu}: NVLink fabric has the state '{state}' and the status '{outcome}', "
                "expected 'Completed' and 'Success'"
            )


def _links(status: str, gpus: Sequence[Gpu], wanted: int | None) -> Iterator[str]:
    down: dict[int, list[str]] = {gpu.index: [] for gpu in gpus}
    up = dict.fromkeys(down, 0)
    index = -1
    for line in status.splitlines():
        if line.startswith("GPU "):
            index = int(line[4:].partition(":")[0])
        elif index in up and (link := _LINK.match(line)):
            if "inactive" in link[2].lower():
                down[index].append(link[1])
            else:
                up[index] += 1
    expected = wanted if wanted is not None else max(up.values(), default=0)
    for gpu in gpus:
        if up[gpu.index] < expected:
            names = f" (inactive: {','.join(down[gpu.index])})" if down[gpu.index] else ""
            yield f"{gpu}: {up[gpu.index]} of {expected} NVLink links are active{names}"


def power(smi: str, *, min_watts: float | None) -> str | None:
    """Compare each GPU's power limit with `min_watts` and with other GPUs of the same model."""
    return listed(
        _power(report(smi), min_watts),
        "raise a low limit with nvidia-smi --power-limit; if a GPU does not answer, restart the "
        "machine",
    )


def _power(gpus: Sequence[Gpu], least: float | None) -> Iterator[str]:
    limits: dict[int, float] = {}
    for gpu in gpus:
        paths = (
            "GPU Power Readings/Current Power Limit",
            "Power Readings/Enforced Power Limit",
            "Power Readings/Power Limit",
        )
        if is_broken(gpu.get(*paths)):
            yield f"{gpu}: the GPU does not answer: nvidia-smi cannot read its power limit"
        elif (limit := gpu.number(*paths)) is not None:
            limits[gpu.index] = limit
    for gpu in gpus:
        likes = [
            limits[other.index]
            for other in gpus
            if other.index in limits and other.get("Product Name") == gpu.get("Product Name")
        ]
        wanted = max([*likes, least or 0], default=0)
        if limits.get(gpu.index, wanted) < wanted:
            yield f"{gpu}: power limit {limits[gpu.index]:g} W, expected {wanted:g} W"


def temperature(smi: str, *, max_celsius: float | None) -> str | None:
    """Check that no GPU has reached its slowdown temperature, or is hotter than `max_celsius`.

    Also check that the GPU's memory is not hotter than the maximum that the GPU reports for it.
    Hopper and later GPUs do not report the slowdown temperature. Instead, they report how far the
    temperature is below it (T.Limit).
    """
    return listed(_hot(report(smi), max_celsius), "check the cooling of the machine")


def _hot(gpus: Sequence[Gpu], most: float | None) -> Iterator[str]:
    for gpu in gpus:
        current = gpu.number("Temperature/GPU Current Temp")
        slow = gpu.number("Temperature/GPU Slowdown Temp")
        left = gpu.number("Temperature/GPU T.Limit Temp")
        slow_left = gpu.number("Temperature/GPU Slowdown T.Limit Temp")
        memory = gpu.number("Temperature/Memory Current Temp")
        memory_most = gpu.number("Temperature/Memory Max Operating Temp")
        if current is not None and (
            (most is not None and current > most)
            or (slow is not None and current >= slow)
            or (left is not None and slow_left is not None and left <= slow_left)
        ):
            yield f"{gpu}: the GPU is too hot ({current:g} °C)"
        elif memory is not None and memory_most is not None and memory > memory_most:
            yield f"{gpu}: the GPU's memory is too hot ({memory:g} °C)"


def busy(
    smi: str, processes: str, job: str, gres: str, *, max_mib: float, shared: bool
) -> str | None:
    """Check that no GPU is in use while no job uses it.

    In a prolog or epilog, check only the GPUs of its job. At an interval, or if jobs share GPUs
    (`shared`), check all GPUs, but only while no job runs on the node.
    """
    gpus = report(smi)
    if job.strip() and not shared:
        places = {int(place) for place in job.strip().split(",")}
        ordered = enumerate(_in_order_of_slurm(gpus, gres))
        free = {gpu.index for place, gpu in ordered if place in places}
    elif jobs(processes):
        raise UnknownError(
            "jobs run on this node, but this check requires a node without jobs; no action needed"
        )
    else:
        free = {gpu.index for gpu in gpus}
    return listed(
        _held(gpus, free, max_mib),
        "end the processes that nvidia-smi shows; if it shows none, look for processes outside "
        "the pod, or reset the GPU",
    )


def _in_order_of_slurm(gpus: Sequence[Gpu], gres: str) -> list[Gpu]:
    """Sort GPUs in the order in which Slurm numbers them in SLURM_JOB_GPUS.

    With AutoDetect=off, Slurm numbers GPUs in the order of their device files in `gres`, the node's
    gres.conf. The number of a device file, such as /dev/nvidia2, is the GPU's minor number. Without
    AutoDetect=off, Slurm numbers GPUs by PCI bus, as nvidia-smi does.
    """
    minors = {gpu.index: gpu.number("Minor Number") for gpu in gpus}
    if not gres.startswith("AutoDetect=off") or None in minors.values():
        return list(gpus)
    return sorted(gpus, key=lambda gpu: minors[gpu.index] or 0)


def _held(gpus: Sequence[Gpu], free: set[int], most: float) -> Iterator[str]:
    for gpu in gpus:
        used = gpu.number("FB Memory Usage/Used") or 0
        names = gpu.fields.get("Processes/Process ID/Name", ())
        own = [name for name in names if not name.endswith(_MPS)]
        if gpu.index in free and (own or used > most):
            whose = f" by {len(own)} processes" if own else ""
            yield f"{gpu}: {used:g} MiB of memory are in use{whose} although no job uses the GPU"
