"""Parse the outputs of the long checks' programs. Each function returns one number."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_NUMBER = r"\d+(?:\.\d+)?"
_NCCL_DEVICE = re.compile(r"^#\s+Rank\s+\d+ ", re.MULTILINE)
_NCCL_ROW = re.compile(
    # size, count, type, operation, root (since 2022), and twice: time, algbw, busbw, wrong values.
    rf"^\s*(?P<size>\d+)\s+\d+\s+\w+\s+\w+\s+(?:-?\d+\s+)?"
    rf"{_NUMBER}\s+{_NUMBER}\s+(?P<busbw>{_NUMBER})\s+(?P<wrong>\S+)\s+"
    rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+(?P<wrong_in_place>\S+)\s*$",
    re.MULTILINE,
)
_BURNED = re.compile(r"^Tested (\d+) GPUs:", re.MULTILINE)
_BURN_RESULT = re.compile(r"^\s+GPU (\d+): (OK|FAULTY)\s*$", re.MULTILINE)
_COPY_TEST = re.compile(r"Running (\w+)\.")
_MEMBW = re.compile(rf"^triad ({_NUMBER}) MB/s$", re.MULTILINE)
_MEMBW_WRONG = re.compile(r"^wrong (\d+)$", re.MULTILINE)

CONFIGURATION = 5
"""Severity of an error that a setting of the node causes, such as the persistence mode. Such an
error is not a fault of a GPU. Source: DCGM_ERROR_CONFIG in DCGM's dcgm_errors.h."""


class Reading(NamedTuple):
    """Measured value, in the check's own unit."""

    value: float
    note: str = ""
    """Details, such as the number of the GPU."""


class NoValueError(Exception):
    """The output contains no measurement. The message is one line with the reason."""


def nccl(text: str) -> Reading:
    """Return the bus bandwidth that nccl-tests measured for its largest message.

    The unit is GB/s (10^9 bytes). The value is that of the out-of-place operation. It is 0 if a
    result was wrong, because the node is then broken. With one GPU, nccl-tests prints only zeros,
    so there is no measurement.
    """
    rows = list(_NCCL_ROW.finditer(text))
    # This line is the end of the output. If it is missing, the largest message may be missing too.
    if not rows or "# Avg bus bandwidth" not in text:
        raise NoValueError(
            "the line '# Avg bus bandwidth' is missing, so nccl-tests did not finish"
        )
    if len(_NCCL_DEVICE.findall(text)) < 2:
        raise NoValueError("nccl-tests ran with one GPU, expected at least two")
    found = (row[group] for row in rows for group in ("wrong", "wrong_in_place"))
    # Add up only whole numbers: without validation, the column contains `N/A`. Older versions print
    # the largest error instead, such as 1e-06.
    wrong = sum(int(count) for count in found if count.isdecimal())
    if wrong:
        return Reading(0.0, f"{wrong} wrong values")
    largest = max(rows, key=lambda row: int(row["size"]))
    return Reading(float(largest["busbw"]), f"message of {int(largest['size']) / 1e9:g} GB")


def dcgm(text: str) -> Reading:
    """Return the number of failed tests from the output of `dcgmi diag -j` (DCGM 3 and 4).

    Ignores failures that a setting of the node causes. Raises NoValueError if dcgmi skipped all
    tests.
    """
    failed, passed = [], 0
    for test in _dcgm_tests(_json(text, "dcgmi diag")):
        results = test.get("results") or []
        states = {str(result.get("status", "")).lower() for result in results}
        if any(_is_fault(result) for result in results):
            failed.append(str(test.get("name", "?")))
        elif states & {"pass", "warn", "fail"}:
            passed += 1
    if not failed and not passed:
        raise NoValueError("dcgmi ran no test, or skipped all tests")
    return Reading(float(len(failed)), f"failed tests: {', '.join(failed)}" if failed else "")


def _dcgm_tests(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    # Version 3 of DCGM uses the first name, and version 4 uses the second name.
    for name in ("DCGM GPU Diagnostic", "DCGM Diagnostic"):
        for category in answer.get(name, {}).get("test_categories", ()):
            yield from category.get("tests", ())


def _is_fault(result: Mapping[str, Any]) -> bool:
    if str(result.get("status", "")).lower() != "fail":
        return False
    warnings = result.get("warnings") or []
    severities = [w.get("error_severity") for w in warnings if isinstance(w, Mapping)]
    return not severities or any(severity != CONFIGURATION for severity in severities)


def gpu_burn(text: str) -> Reading:
    """Return the number of faulty GPUs from the output of gpu_burn, whose exit code is always 0."""
    tested = _BURNED.search(text)
    results = dict(_BURN_RESULT.findall(text))
    if tested is None or len(results) != int(tested[1]):
        raise NoValueError("the result of at least one GPU is missing, so gpu_burn did not finish")
    faulty = sorted((gpu for gpu, result in results.items() if result != "OK"), key=int)
    return Reading(float(len(faulty)), f"faulty GPUs: {', '.join(faulty)}" if faulty else "")


def gpu_memory(text: str) -> Reading:
    """Return the bandwidth of the slowest copy in nvbandwidth's tests, in GB/s (10^9 bytes)."""
    cells = dict(_nvbandwidth_cells(text))
    if not cells:
        raise NoValueError("nvbandwidth printed no bandwidth")
    slowest = min(cells, key=lambda place: cells[place])
    return Reading(cells[slowest], slowest)


def _nvbandwidth_cells(text: str) -> Iterator[tuple[str, float]]:
    """Yield each value, with a description of the copy that it measures.

    The output has a matrix for each test. The first line of a matrix contains the numbers of the
    columns (GPUs), and each further line starts with the number of the row (CPU).
    """
    test = ""
    for line in text.splitlines():
        if found := _COPY_TEST.match(line):
            test = found[1]
        row, *cells = line.split() or [""]
        if test and row.isdecimal() and not all(map(str.isdecimal, cells)):
            for gpu, cell in enumerate(cells):
                if re.fullmatch(_NUMBER, cell):  # a copy from a GPU to itself is N/A
                    yield f"CPU {row}, GPU {gpu}, {test}", float(cell)


def cpu_memory(text: str) -> Reading:
    """Return the bandwidth of membw's kernel `triad` in MB/s, or 0 if membw read wrong values.

    The source of membw is images/worker/membw.c.
    """
    found = _MEMBW.search(text)
    if found is None:
        raise NoValueError("membw printed no bandwidth")
    wrong = _MEMBW_WRONG.search(text)
    return Reading(0.0, f"{wrong[1]} wrong values") if wrong else Reading(float(found[1]))


def network(text: str) -> Reading:
    """Return how many Gbit/s the receiver got, from the output of `iperf3 --json` at the sender."""
    answer = _json(text, "iperf3")
    if "error" in answer:
        raise NoValueError(f"iperf3: {answer['error']}")
    try:
        return Reading(float(answer["end"]["sum_received"]["bits_per_second"]) / 1e9)
    except (KeyError, TypeError, ValueError):
        raise NoValueError("iperf3 did not report how much data it received") from None


def _json(text: str, program: str) -> dict[str, Any]:
    """Return the first JSON object in a text, and ignore the text around it."""
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NoValueError(f"the output of {program} contains no JSON object")
    return found
