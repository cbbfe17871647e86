"""Parse recorded output of the long checks' programs. Truncated output has no value."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.longchecks import parsers
from agents.longchecks.parsers import NoValueError, Reading

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


@pytest.mark.parametrize(
    ("parse", "name", "value", "note"),
    [
        (parsers.nccl, "nccl-a100-8.txt", 235.26, "message of 8.58993 GB"),
        (parsers.nccl, "nccl-h100-2x8.txt", 338.82, "message of 8.58993 GB"),
        (parsers.gpu_burn, "gpu-burn-a100-8.txt", 0, ""),
        (
            parsers.gpu_burn,
            "gpu-burn-16-faulty.txt",
            16,
            f"faulty GPUs: {', '.join(map(str, range(16)))}",
        ),
        (
            parsers.gpu_memory,
            "nvbandwidth-readme.txt",
            6.2,
            "CPU 0, GPU 0, host_to_device_memcpy_ce",
        ),
        (
            parsers.gpu_memory,
            "nvbandwidth-h100-8-sm.txt",
            35.03,
            "CPU 0, GPU 3, host_to_device_memcpy_sm",
        ),
        (
            parsers.gpu_memory,
            "nvbandwidth-a6000-6-peers.txt",
            21.80,
            "CPU 0, GPU 5, device_to_device_memcpy_read_ce",
        ),
        (parsers.dcgm, "dcgm-3-pass.json", 0, ""),
        (parsers.dcgm, "dcgm-3-fail.json", 1, "failed tests: Persistence Mode"),
        # DCGM 4 reports persistence mode as a configuration of the node.
        (parsers.dcgm, "dcgm-4-gb10.json", 0, ""),
        (parsers.network, "iperf3-3.12.json", 3.96934682178015, ""),
        (parsers.cpu_memory, "membw-2.txt", 9800, ""),
    ],
)
def test_recorded_output_is_parsed(
    parse: Callable[[str], Reading], name: str, value: float, note: str
) -> None:
    assert parse(recorded(name)) == Reading(value, note)


@pytest.mark.parametrize(
    ("parse", "name", "why"),
    [
        (parsers.gpu_burn, "gpu-burn-died.txt", "the result of at least one GPU is missing"),
        (parsers.dcgm, "dcgm-3-skipped.json", "or skipped all tests"),
        (parsers.network, "iperf3-3.12-refused.json", "unable to connect to server"),
    ],
)
def test_error_says_why_the_output_has_no_value(
    parse: Callable[[str], Reading], name: str, why: str
) -> None:
    with pytest.raises(NoValueError, match=why):
        parse(recorded(name))


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (parsers.nccl, "nccl-h100-2x8.txt"),
        (parsers.gpu_burn, "gpu-burn-16-faulty.txt"),
        (parsers.dcgm, "dcgm-4-gb10.json"),
        (parsers.network, "iperf3-3.12.json"),
        (parsers.cpu_memory, "membw-2.txt"),
    ],
)
def test_truncated_output_has_no_value(parse: Callable[[str], Reading], name: str) -> None:
    text = recorded(name)
    for share in (0.0, 0.3, 0.6, 0.9):
        with pytest.raises(NoValueError):
            parse(text[: int(len(text) * share)])


def test_wrong_results_of_nccl_mean_zero_bandwidth() -> None:
    text = recorded("nccl-h100-2x8.txt").replace("338.82      0", "338.82      3")
    assert parsers.nccl(text) == Reading(0.0, "3 wrong values")


def test_nccl_on_one_gpu_has_no_bus_bandwidth() -> None:
    lines = recorded("nccl-h100-2x8.txt").splitlines()
    alone = [line for line in lines if not line.startswith("#  Rank") or " Rank  0" in line]
    with pytest.raises(NoValueError, match="one GPU"):
        parsers.nccl("\n".join(alone))


def test_failed_hardware_test_of_dcgm_is_a_fault() -> None:
    answer = json.loads(recorded("dcgm-4-gb10.json"))
    memory = answer["DCGM Diagnostic"]["test_categories"][1]["tests"][0]
    memory["results"][0] |= {"status": "Fail", "warnings": [{"error_severity": 2}]}
    assert parsers.dcgm(json.dumps(answer)) == Reading(1, "failed tests: memory")


def test_wrong_memory_content_means_zero_bandwidth() -> None:
    assert parsers.cpu_memory(recorded("membw-2.txt") + "wrong 12\n") == Reading(
        0.0, "12 wrong values"
    )


def test_lines_around_json_are_skipped() -> None:
    text = f"slurmstack: network on cpu-0\n{recorded('iperf3-3.12.json')}\nsrun: done\n"
    assert parsers.network(text).value == pytest.approx(3.97, abs=0.01)
