"""The agent finds the time, the severity and the job in each log line."""

import pytest

from agents.logs.lines import LONGEST, SECOND, Line, Severity, Splitter, read
from agents.say import logfmt

AT = b"2026-11-22T18:20:19.123456789Z "
TIME = 1_795_371_619 * SECOND + 123_456_789

SEVERITIES = [
    ("slurmctld: slurmctld version 24.11.5 started on cluster dev", Severity.INFO),
    ("slurmctld: error: Node cpu-1 appears to have a different slurm.conf", Severity.ERROR),
    ("slurmctld: error: sched: Attempt to allocate nothing", Severity.ERROR),
    ("slurmctld: fatal: CLUSTER NAME MISMATCH.", Severity.FATAL),
    ("slurmctld: warning: can't honor --ntasks-per-node", Severity.WARN),
    ("slurmctld: debug:  sched: Running job scheduler for default depth.", Severity.DEBUG),
    ("slurmctld: debug3: Testing JobId=7", Severity.DEBUG),
    ("slurmctld: sched: Allocate JobId=7 NodeList=cpu-0 #CPUs=1 Partition=main", Severity.INFO),
    ("slurmd: launch task StepId=7.0 request from UID:2000 GID:2000", Severity.INFO),
    ("slurmstepd: error: *** JOB 7 ON cpu-0 CANCELLED AT 2026-11-22T18:20:19 ***", Severity.ERROR),
    ("slurmdbd: error: mysql_real_connect failed: 2002", Severity.ERROR),
    ("slurmrestd: operations_router: [[10.244.0.9]:41222] GET /slurm/v0.0.42/nodes", Severity.INFO),
    ("sackd: error: unable to mkdir(/run/slurm): Permission denied", Severity.ERROR),
    ("munged: Notice:    Starting munge-0.5.16 daemon (pid 8)", Severity.INFO),
    ("munged: Warning:   Logfile is insecure: group-writable permissions", Severity.WARN),
    ("munged: Error:     Found pid 7 bound to socket", Severity.ERROR),
    ("Accepted publickey for researcher from 10.0.0.9 port 50022 ssh2", Severity.INFO),
    ("error: kex_exchange_identification: Connection closed by remote host", Severity.ERROR),
    ("fatal: Timeout before authentication for 10.0.0.9 port 50022", Severity.FATAL),
    ("2026-11-22 18:20:19 0 [Note] mariadbd: ready for connections.", Severity.INFO),
    ("2026-11-22  8:20:19 31 [Warning] Aborted connection 31 to db: 'slurm'", Severity.WARN),
    ("2026-11-22 18:20:19 0 [ERROR] InnoDB: Unable to lock ./ibdata1", Severity.ERROR),
    ('time=2026-11-22T18:20:19.1Z level=WARN source=a.go:1 msg="slow: error: x"', Severity.WARN),
    ('ts=2026-11-22T18:20:19.1Z caller=main.go:5 level=error err="open: denied"', Severity.ERROR),
    ('level=info ts=2026-11-22T18:20:19.1Z msg="Server is ready"', Severity.INFO),
    ('logger=settings t=2026-11-22T18:20:19Z level=debug msg="a"', Severity.DEBUG),
    ("key 1795371619 replaces key 0", Severity.INFO),
    (logfmt("error", "cluster: snapshot: no answer within 30 s"), Severity.ERROR),
    (logfmt("warn", 'checks: gpu-xid: "level=info" on\nGPU 0'), Severity.WARN),
    (logfmt("info", "error: is the name of a node"), Severity.INFO),
    ("error: not finished: sacctmgr: Connection refused; run the command again", Severity.ERROR),
    ("backup: dump 1f2e3d4c of slurm_acct_db", Severity.INFO),
    ("a user called error: is no error", Severity.INFO),
    ("{}", Severity.INFO),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SEVERITIES, ids=lambda one: str(one)[:40])
def test_severity_is_parsed_from_lines_of_each_daemon(text: str, expected: Severity) -> None:
    line = read(AT + text.encode())

    assert line is not None
    assert (line.text, line.severity) == (text, expected)


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"2026-11-22T18:20:19.123456789Z ", TIME),
        (b"2026-11-22T20:20:19.123456789+02:00 ", TIME),
        (b"2026-11-22T18:20:19.1Z ", TIME - 23_456_789),
        (b"2026-11-22T18:20:19Z ", TIME - 123_456_789),
    ],
)
def test_times_are_parsed_to_the_nanosecond(stamp: bytes, expected: int) -> None:
    line = read(stamp + b"text")

    assert line == Line(expected, "text", Severity.INFO)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"unable to retrieve container logs for containerd://2d1c",
        b"2026-13-22T18:20:19.1Z an invalid month",
        AT,
        AT + b"\r",
    ],
)
def test_lines_without_a_valid_timestamp_or_text_are_ignored(raw: bytes) -> None:
    assert read(raw) is None


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("slurmctld: sched: Allocate JobId=7 NodeList=cpu-0", "7"),
        ("slurmctld: _job_complete: JobId=7_3(9) WEXITSTATUS 0", "7_3"),
        ("slurmctld: sched: Allocate JobId=7+1(8) NodeList=cpu-0", "7+1"),
        ("slurmd: launch task StepId=7.batch request from UID:2000", "7"),
        ("slurmd: Launching batch job 7 for UID 2000", "7"),
        ("slurmctld: NodeName=cpu-7", ""),
        ("munged: Notice:    Stopping munge-0.5.16 daemon (pid 8)", ""),
    ],
)
def test_job_id_in_a_line_has_the_format_of_squeue(text: str, job: str) -> None:
    line = read(AT + text.encode())

    assert line is not None
    assert line.job == job


def test_carriage_return_of_sshd_is_removed() -> None:
    line = read(AT + b"Server listening on 0.0.0.0 port 2222.\r")

    assert line is not None
    assert line.text == "Server listening on 0.0.0.0 port 2222."


def test_invalid_bytes_do_not_change_the_rest_of_a_line() -> None:
    line = read(AT + "slurmd: error: 名前 ".encode() + b"\xff\x00\x1b[31m")

    assert line is not None
    assert line.text == "slurmd: error: 名前 \ufffd\x00\x1b[31m"
    assert line.severity == Severity.ERROR


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 10 * LONGEST])
def test_long_line_is_truncated(length: int) -> None:
    splitter = Splitter()
    whole = AT + b"x" * length + b"\n"
    parts = [whole[at : at + 1000] for at in range(0, len(whole), 1000)]
    (raw,) = [found for part in parts for found in splitter.feed(part)]
    line = read(raw)

    assert line is not None
    assert line.text == "x" * min(length, LONGEST) + "…" * (length > LONGEST)
    assert len(raw) < LONGEST + 100, "the splitter keeps only the start of a long line"


def test_lines_do_not_depend_on_the_size_of_chunks() -> None:
    whole = b"one\n\ntwo\nthr"
    for size in range(1, len(whole) + 1):
        splitter = Splitter()
        parts = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert [one for part in parts for one in splitter.feed(part)] == [b"one", b"", b"two"]
        assert splitter.rest() == b"thr"


@pytest.mark.parametrize("text", ['a="b" ' * 3000, "a=b " * 4000, "x" * 16_000, "a=" * 8000])
def test_any_line_is_parsed_quickly(text: str) -> None:
    # Quadratic or worse backtracking would exceed the time limit of a test.
    for _ in range(20):
        assert read(AT + text.encode()) is not None
