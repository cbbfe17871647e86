"""Job steps report image pulls, and the node's Slurm record contains the sums."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.checks import slurm
from agents.containers import counts, listener
from agents.containers.counts import Counts, of_extra, read
from agents.drains import Evidence
from tests.support.waiting import eventually

SOME = Counts(pulls=2, downloaded=3_000, milliseconds=1_500, hits=7, failures=1)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run a listener at a separate address, and return the file that it writes."""
    address = f"\0slurmstack-test-{tmp_path.name}-{id(tmp_path)}"
    monkeypatch.setattr(counts, "ADDRESS", address)
    file = tmp_path / "run" / "images.json"
    threading.Thread(target=listener.main, args=(address, file), daemon=True).start()
    eventually("the listener starts", lambda: read(file) == Counts())
    return file


def test_listener_adds_up_the_reports_of_job_steps(file: Path) -> None:
    counts.report_pull(2_000, 1.5)
    counts.report_pull(1_000, 0.5)
    counts.report_hit()
    counts.report_failure()

    expected = Counts(pulls=2, downloaded=3_000, milliseconds=2_000, hits=1, failures=1)
    eventually("all reports are counted", lambda: read(file) == expected)


def test_invalid_reports_are_ignored_and_later_ones_counted(file: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for report in (b"", b"hit hit", b"pull -1 2", b"pull 1", b"\xff" * 60_000):
            sender.sendto(report, counts.ADDRESS)
    counts.report_hit()

    eventually("the report is counted", lambda: read(file) == Counts(hits=1))


def test_listener_survives_a_file_that_it_cannot_write(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    obstacle = file.with_suffix(".new")
    obstacle.mkdir()
    counts.report_hit()
    eventually(
        "the error is reported", lambda: "cannot write the counts" in capsys.readouterr().err
    )

    obstacle.rmdir()
    counts.report_hit()

    eventually("both reports are counted", lambda: read(file) == Counts(hits=2))


def test_reporting_succeeds_even_if_no_listener_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "ADDRESS", "\0slurmstack-no-listener")

    counts.report_hit()


@given(st.binary(max_size=80))
def test_no_report_lowers_a_count_or_makes_the_json_invalid(report: bytes) -> None:
    after = SOME.add(report)

    assert of_extra(json.dumps(after.fields())) == after
    assert all(
        getattr(after, name) >= getattr(SOME, name) for name in ("pulls", "downloaded", "hits")
    )


@pytest.mark.parametrize(
    ("size", "milliseconds"), [(2**41, 1), (1, 10**9), (10**40, 1), (2**40, 10_000)]
)
def test_report_of_an_implausibly_large_number_is_ignored(size: int, milliseconds: int) -> None:
    """Otherwise one forged report would set the count to its maximum."""
    assert SOME.add(b"pull %d %d" % (size, milliseconds)) == SOME


def test_pull_at_the_rate_of_a_fast_link_is_counted() -> None:
    assert SOME.add(b"pull 50000000000 1000").downloaded == SOME.downloaded + 50_000_000_000


def test_count_stops_at_its_maximum() -> None:
    almost = replace(SOME, downloaded=(1 << 50) - 1)

    assert almost.add(b"pull 1000 1").downloaded == 1 << 50


def test_slurm_record_of_a_node_contains_check_results_and_counts() -> None:
    evidence = Evidence(7, ("disk",))
    extra = slurm.record(evidence, SOME)

    assert Evidence.parse(extra) == evidence
    assert of_extra(extra) == SOME
    assert "\n" not in extra


def test_slurm_record_without_counts_gives_no_counts() -> None:
    assert of_extra(slurm.record(Evidence(7), None)) is None


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "plain words",
        "[]",
        '{"images": {"pulls": 1}}',
        '{"images": {"pulls":1,"downloaded":1,"milliseconds":1,"hits":1,"failures":-1}}',
        '{"images": {"pulls":1,"downloaded":1,"milliseconds":1,"hits":1,"failures":1.5}}',
        '{"images": {"pulls":true,"downloaded":1,"milliseconds":1,"hits":1,"failures":1}}',
    ],
)
def test_invalid_counts_are_ignored(extra: str) -> None:
    assert of_extra(extra) is None


def test_missing_or_invalid_file_gives_no_counts(tmp_path: Path) -> None:
    broken = tmp_path / "images.json"
    broken.write_text('{"pulls": ')

    assert read(broken) is None
    assert read(tmp_path / "missing") is None
