"""GPU checks get recorded output of nvidia-smi from real GPUs, or a copy with one value changed."""

import re
from collections.abc import Sequence

import pytest

from agents.checks import gpus
from agents.checks.judging import UnknownError
from agents.checks.registry import CHECKS, Check, Nodes
from tests.support.recordings import recorded
from tests.unit.agents.checks.processes import BUSY, IDLE

H100, H200 = "h100-535.183.01", "h200-550.90.12"
IDLE_H100S = "h100-535.161.08-power-brake"
RESET = "reset the GPU or restart the machine"
RESTART = "; restart the machine"
ECC = (
    "uncorrectable memory errors, expected at most 0; reset these GPUs, and replace a GPU whose "
    "errors return"
)
LINKS = "; check nvidia-fabricmanager, or restart the machine"
LIMIT = (
    "; raise a low limit with nvidia-smi --power-limit; if a GPU does not answer, restart the "
    "machine"
)
BUSY_REMEDY = (
    "end the processes that nvidia-smi shows; if it shows none, look for processes outside the "
    "pod, or reset the GPU"
)
COOLING = "; check the cooling of the machine"
JOINED = f"expected 'Completed' and 'Success'{LINKS}"
HEALTHY = [H200, "rtx5090-570.124.06"]
BROKEN = {
    "a10-535.129.03-rows-pending": {"gpu-row-remap"},
    "a100-555.42.02-row-pending": {"gpu-row-remap"},
    "a100-sram-uncorrectable": {"gpu-ecc"},
    IDLE_H100S: {"gpu-throttle"},
    H100: {"gpu-busy", "gpu-throttle"},
    "rtx4090-535.154.05-busy": {"gpu-busy"},
}
JUDGED = [
    check for check in CHECKS.values() if check.nodes is Nodes.GPUS and check.name != "gpu-xid"
]


def verdicts(smi: str, checks: Sequence[Check] = JUDGED) -> dict[str, str | None]:
    texts = {"nvidia-smi": smi, "nvlink": "", "processes": IDLE, "job": "", "gres": ""}
    return {
        check.name: check.judge(*(texts[name] for name in check.reads), **check.limits)
        for check in checks
    }


def failed(smi: str) -> set[str]:
    return {name for name, wrong in verdicts(smi).items() if wrong}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_gpus_pass_every_check(name: str) -> None:
    assert failed(recorded(name)) == set()


@pytest.mark.parametrize(("name", "checks"), BROKEN.items())
def test_broken_gpus_fail_exactly_the_matching_checks(name: str, checks: set[str]) -> None:
    assert failed(recorded(name)) == checks


def test_message_names_the_gpu_by_number_and_bus_id() -> None:
    assert (
        gpus.row_remap(recorded("a10-535.129.03-rows-pending"))
        == f"GPU 0 (07:00.0): faulty memory rows will be replaced only after a reset: {RESET}"
    )
    assert gpus.throttle(recorded(H100)) is not None


def test_message_names_at_most_four_gpus() -> None:
    wrong = gpus.throttle(recorded("h100-535.161.08-power-brake"))

    assert wrong is not None
    assert wrong.count("HW Power Brake Slowdown") == 4
    assert "and 4 more; check the cooling" in wrong


def edited(name: str, line: str, value: str, section: str = "") -> str:
    """Return a recording with another value in the first line named `line` after `section`."""
    text = recorded(name)
    start = text.index(section)
    changed, times = re.subn(rf"({re.escape(line)} *: ).*", rf"\g<1>{value}", text[start:], count=1)
    assert times == 1, f"{name} has no '{line}'"
    return text[:start] + changed


@pytest.mark.parametrize(
    ("line", "value", "section", "check", "wrong"),
    [
        ("Reset Required", "Yes", "", "gpu-present", f"requires a reset{RESTART}"),
        ("Drain and Reset Recommended", "Yes", "", "gpu-present", f"requires a reset{RESTART}"),
        ("GPU Current Temp", "Unknown Error", "", "gpu-present", f"does not answer{RESTART}"),
        (
            "GPU Current Temp",
            "[GPU requires reset]",
            "",
            "gpu-present",
            f"does not answer{RESTART}",
        ),
        ("DRAM Uncorrectable", "1", "Volatile", "gpu-ecc", f": 1 {ECC}"),
        (
            "SRAM Uncorrectable Parity",
            "2",
            "Volatile",
            "gpu-ecc",
            f": 2 {ECC}",
        ),
        (
            "SRAM Threshold Exceeded",
            "Yes",
            "Aggregate",
            "gpu-ecc",
            (
                ": errors in SRAM (on-chip memory) exceed NVIDIA's threshold; reset these GPUs, "
                "and replace a GPU whose errors return"
            ),
        ),
        (
            "Pending Page Blacklist",
            "Yes",
            "",
            "gpu-retired-pages",
            f": faulty memory pages will be retired only after a reset: {RESET}",
        ),
        (
            "Double Bit ECC",
            "61",
            "",
            "gpu-retired-pages",
            ": 61 retired memory pages, expected at most 60; replace the GPU",
        ),
        (
            "Remapping Failure Occurred",
            "Yes",
            "",
            "gpu-row-remap",
            ": a faulty memory row could not be replaced by a spare row: replace the GPU",
        ),
        (
            "HW Slowdown",
            "Active",
            "",
            "gpu-throttle",
            (
                ": the GPU reduces its clocks because of 'HW Slowdown'; check the cooling and the "
                "power of the machine"
            ),
        ),
        (
            "HW Thermal Slowdown",
            "Active",
            "",
            "gpu-throttle",
            (
                ": the GPU reduces its clocks because of 'HW Thermal Slowdown'; check "
                "the cooling and the power of the machine"
            ),
        ),
        (
            "State",
            "In Progress",
            "Fabric",
            "gpu-nvlink",
            f": NVLink fabric has the state 'In Progress' and the status 'Success', {JOINED}",
        ),
        (
            "Status",
            "Timeout",
            "Fabric",
            "gpu-nvlink",
            f": NVLink fabric has the state 'Completed' and the status 'Timeout', {JOINED}",
        ),
        (
            "Current Power Limit",
            "[Unknown Error]",
            "",
            "gpu-power",
            f": the GPU does not answer: nvidia-smi cannot read its power limit{LIMIT}",
        ),
        (
            "GPU T.Limit Temp",
            "-2 C",
            "",
            "gpu-temperature",
            f": the GPU is too hot (28 °C){COOLING}",
        ),
        (
            "Used",
            "40960 MiB",
            "FB Memory Usage",
            "gpu-busy",
            (f": 40960 MiB of memory are in use although no job uses the GPU; {BUSY_REMEDY}"),
        ),
    ],
)
def test_each_fault_is_detected_by_its_check(
    line: str, value: str, section: str, check: str, wrong: str
) -> None:
    found = verdicts(edited(H200, line, value, section), checks=[CHECKS[check]])

    assert found == {check: f"GPU 0 (03:00.0) {wrong}".replace(" :", ":")}


def test_check_fails_if_the_driver_requests_a_recovery_action() -> None:
    smi = edited("rtx5090-570.124.06", "GPU Recovery Action", "Node Reboot Required")

    assert gpus.present(smi) == (
        "GPU 0 (02:00.0) requires the action 'Node Reboot Required', according to nvidia-smi"
        f"{RESTART}"
    )


@pytest.mark.parametrize(
    "message",
    [
        "No devices were found",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot it",
    ],
)
def test_check_fails_if_the_driver_prints_an_error(message: str) -> None:
    assert gpus.present(f"\n{message}\n") == message


@pytest.mark.parametrize("check", JUDGED, ids=lambda check: check.name)
@pytest.mark.parametrize(
    "text", ["", "nvidia-smi: permission denied", recorded("h100-535.183.01-cut-short")]
)
def test_check_is_unknown_if_its_output_is_truncated_or_unexpected(check: Check, text: str) -> None:
    with pytest.raises(UnknownError):
        verdicts(text, [check])


def test_missing_gpu_fails_and_an_extra_gpu_passes() -> None:
    assert (
        gpus.count(recorded(H100), count=9)
        == "the node has 8 GPUs, expected 9; restart or repair the machine"
    )
    assert (
        gpus.count("No devices were found", count=8)
        == "the node has 0 GPUs, expected 8; restart or repair the machine"
    )
    assert gpus.count(recorded(H100), count=8) is None
    assert gpus.count(recorded(H100), count=4) is None


def test_unreadable_value_makes_the_check_unknown() -> None:
    smi = edited(H200, "DRAM Uncorrectable", "Unknown Error", "Volatile")

    with pytest.raises(UnknownError, match="DRAM Uncorrectable' is 'Unknown Error'"):
        gpus.ecc(smi, max_uncorrectable=0)


def test_errors_up_to_the_limit_are_accepted() -> None:
    smi = recorded("a100-sram-uncorrectable")

    assert gpus.ecc(smi, max_uncorrectable=1) is None


def test_error_counters_of_gpus_older_than_turing_are_read() -> None:
    smi = """Attached GPUs                       : 1
GPU 00000000:00:1E.0
    ECC Errors
        Volatile
            Single Bit
                Total                   : 7
            Double Bit
                Device Memory           : 2
                Total                   : 2
"""

    assert gpus.ecc(smi, max_uncorrectable=0) == f"GPU 0 (00:1E.0): 2 {ECC}"


def test_slowdowns_and_power_limits_of_older_drivers_are_read() -> None:
    smi = """Attached GPUs                       : 1
GPU 00000000:00:1E.0
    Clocks Throttle Reasons
        HW Slowdown                     : Active
    Power Readings
        Enforced Power Limit            : 100.00 W
"""

    assert gpus.throttle(smi) == (
        "GPU 0 (00:1E.0): the GPU reduces its clocks because of 'HW Slowdown'; check the cooling "
        "and the power of the machine"
    )
    assert (
        gpus.power(smi, min_watts=300)
        == f"GPU 0 (00:1E.0): power limit 100 W, expected 300 W{LIMIT}"
    )
    assert gpus.power(smi, min_watts=100) is None


def test_gpu_with_a_lower_power_limit_than_other_gpus_fails() -> None:
    smi = edited(H100, "Current Power Limit", "400.00 W")

    assert (
        gpus.power(smi, min_watts=None)
        == f"GPU 0 (53:00.0): power limit 400 W, expected 700 W{LIMIT}"
    )


@pytest.mark.parametrize(
    ("name", "line", "value", "most", "wrong"),
    [
        (
            "a100-555.42.02-row-pending",
            "GPU Current Temp",
            "89 C",
            None,
            f"GPU 0 (9E:00.0): the GPU is too hot (89 °C){COOLING}",
        ),
        ("a100-555.42.02-row-pending", "GPU Current Temp", "88 C", None, None),
        (
            "a100-555.42.02-row-pending",
            "GPU Current Temp",
            "88 C",
            85,
            f"GPU 0 (9E:00.0): the GPU is too hot (88 °C){COOLING}",
        ),
        (
            *("a100-555.42.02-row-pending", "Memory Current Temp", "96 C", None),
            f"GPU 0 (9E:00.0): the GPU's memory is too hot (96 °C){COOLING}",
        ),
        (H200, "GPU T.Limit Temp", "0 C", None, None),
    ],
)
def test_temperature_limit_comes_from_the_gpu_or_the_settings(
    name: str, line: str, value: str, most: float | None, wrong: str | None
) -> None:
    assert gpus.temperature(edited(name, line, value), max_celsius=most) == wrong


def test_message_names_the_links_that_are_down() -> None:
    smi = edited(H200, "State", "N/A", "Fabric")

    wrong = gpus.nvlink(recorded("nvlink-v100-inactive"), smi, links=6)

    assert wrong == f"GPU 0 (03:00.0): 4 of 6 NVLink links are active (inactive: 3,5){LINKS}"


def test_gpu_with_fewer_links_than_the_others_fails() -> None:
    status = recorded("nvlink-a100")
    fewer = status.replace(" Link 11: 25 GB/s", " Link 11: <inactive>", 1)

    assert gpus.nvlink(status, recorded(H100), links=None) is None
    assert (
        gpus.nvlink(fewer, recorded(H100), links=None)
        == f"GPU 0 (53:00.0): 11 of 12 NVLink links are active (inactive: 11){LINKS}"
    )


def test_gpus_without_links_pass_unless_links_are_expected() -> None:
    message = "NVML: Unable to retrieve NVLink information as all links are inActive\n"

    assert gpus.nvlink(message, recorded(H100), links=None) is None
    assert gpus.nvlink(message, recorded(H100), links=18) is not None


def busy(smi: str, processes: str, job: str, gres: str = "", *, shared: bool = False) -> str | None:
    return gpus.busy(smi, processes, job, gres, max_mib=1024, shared=shared)


def test_busy_gpu_fails_on_a_node_without_jobs() -> None:
    wrong = busy(recorded("rtx4090-535.154.05-busy"), IDLE, "")

    assert wrong is not None
    assert "processes" in wrong


def test_prolog_and_epilog_check_only_the_gpus_of_their_job() -> None:
    smi = edited(H100, "Used", "2048 MiB", "FB Memory Usage")

    with pytest.raises(UnknownError):
        busy(smi, BUSY, "")
    assert busy(smi, BUSY, "1") is None
    assert busy(smi, BUSY, "0,1") == (
        "GPU 0 (53:00.0): 2048 MiB of memory are in use although no job uses the GPU; "
        f"{BUSY_REMEDY}"
    )


def with_minors(smi: str, minors: Sequence[int]) -> str:
    """Return a report of nvidia-smi whose GPUs have these numbers in their `/dev/nvidia…` files."""
    left = iter(minors)
    return re.sub(
        "^(GPU .*)$",
        lambda found: f"{found[1]}\n    Minor Number : {next(left)}",
        smi,
        flags=re.MULTILINE,
    )


def test_gpus_of_a_job_are_numbered_by_device_file_without_autodetect() -> None:
    # Slurm's GPU 2 has /dev/nvidia2, which is the first GPU on the bus.
    smi = edited(IDLE_H100S, "Used", "2048 MiB", "FB Memory Usage")
    crossed = with_minors(smi, [2, 3, 0, 1, 6, 7, 4, 5])

    assert busy(crossed, BUSY, "0", "AutoDetect=off\n") is None
    assert busy(crossed, BUSY, "1,2", "AutoDetect=off\n") == (
        "GPU 0 (19:00.0): 2048 MiB of memory are in use although no job uses the GPU; "
        f"{BUSY_REMEDY}"
    )
    assert busy(crossed, BUSY, "0", "AutoDetect=nvml\n") == (
        "GPU 0 (19:00.0): 2048 MiB of memory are in use although no job uses the GPU; "
        f"{BUSY_REMEDY}"
    )
    assert busy(crossed, BUSY, "2", "AutoDetect=nvml\n") is None


def test_gaps_between_device_files_do_not_change_the_gpu_order() -> None:
    # The container has only three of the machine's GPUs, so the numbers have gaps.
    smi = edited(IDLE_H100S, "Used", "2048 MiB", "FB Memory Usage")
    three = smi[: [found.start() for found in re.finditer("^GPU ", smi, re.MULTILINE)][3]]
    gaps = with_minors(re.sub("(Attached GPUs *:) 8", r"\1 3", three), [5, 3, 7])

    assert busy(gaps, BUSY, "1", "AutoDetect=off\n") == (
        "GPU 0 (19:00.0): 2048 MiB of memory are in use although no job uses the GPU; "
        f"{BUSY_REMEDY}"
    )
    assert busy(gaps, BUSY, "0,2", "AutoDetect=off\n") is None


def test_idle_mps_server_does_not_make_a_gpu_busy() -> None:
    smi = edited(H200, "Processes", "None").replace(
        "    Processes                             : None",
        "    Processes\n        Process ID                        : 7\n"
        "            Type                          : C\n"
        "            Name                          : /usr/bin/nvidia-cuda-mps-server\n",
    )

    assert busy(smi, IDLE, "") is None
    assert busy(smi.replace("nvidia-cuda-mps-server", "python3"), IDLE, "") is not None


def test_shared_gpus_are_checked_only_on_nodes_without_jobs() -> None:
    smi = edited(H100, "Used", "2048 MiB", "FB Memory Usage")

    with pytest.raises(UnknownError):
        busy(smi, BUSY, "0", shared=True)
    assert busy(smi, IDLE, "", shared=True) is not None
