"""The exporter parses the output of images/agents/snapshot.c, which prints Slurm's tables."""

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.exporter.rows import (
    Job,
    License,
    Partition,
    UnexpectedError,
    gpus,
    hosts,
    parse,
    task_count,
)
from agents.hostlist import compress
from tests.unit.agents.exporter.lines import job_line, node_line
from tests.unit.agents.exporter.recordings import tables

MIB = 1 << 20


def test_complete_recording_is_parsed() -> None:
    found = tables()

    assert found.partitions == [Partition("main", "up")]
    assert found.licenses == [License("cad", 10, 2, 8, 0)]
    (course,) = found.reservations
    assert (course.name, course.nodes, course.end - course.start) == ("course", 1, 3600)
    assert [job.state for job in found.jobs].count("PENDING") == 4
    (running,) = (job for job in found.jobs if job.state == "RUNNING")
    assert (running.cpus, running.memory, running.gpus, running.tasks) == (3, 300 * MIB, 0, 1)
    assert (running.id, [*hosts(running.nodes)]) == ("1", ["cpu-0", "cpu-1"])
    assert {(job.id, job.nodes) for job in found.jobs if job != running} == {("", "")}
    assert (running.eligible, running.start) == (1795342814, 1795342815)
    (array,) = (job for job in found.jobs if job.tasks > 1)
    assert (array.tasks, array.cpus, array.node) == (11, 2, "")
    (failed,) = (job for job in found.jobs if job.state == "FAILED")
    assert failed.node in ("cpu-0", "cpu-1")
    first, second = found.nodes
    assert first.reason == "slurmstack:check:gpu-ecc: 3 errors"
    assert second.reason == 'a "name" \\ of {two} lines,    naïve, 名前'
    assert (first.cpus, first.memory, first.partitions) == (2, 1000 * MIB, ("main",))
    assert "DRAIN" in first.states
    assert first.memory_free is not None
    assert first.load is not None
    assert (first.machine, second.machine) == ("m7", "")


def test_gpus_of_a_node_are_parsed_by_type() -> None:
    line = node_line("gpu:h100:8(S:0-1),shard:32", "gpu:h100:2(IDX:0,3),shard:0")
    (node,) = parse([line]).nodes

    assert node.gpus == {"h100": 8}
    assert node.gpus_of_jobs == {"h100": 2}
    assert not node.accounts_gpus
    assert (node.memory_free, node.load) == (None, None), (
        "slurmd has not reported memory and load yet"
    )
    (counted,) = parse([node_line(tres="cpu=8,mem=64G,billing=8,gres/gpu=8")]).nodes
    assert counted == replace(node, gpus={}, gpus_of_jobs={}, accounts_gpus=True)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("", {}),
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0),gpu:t4:2(S:1)", {"a100": 4, "t4": 2}),
        ("gpu:1g.10gb:7(S:0),gpu:3g.40gb:2", {"1g.10gb": 7, "3g.40gb": 2}),
        ("gpu:0", {"": 0}),
        ("tmpdisk:100G,nogpu:8", {}),
    ],
)
def test_gpus_are_found_among_other_generic_resources(gres: str, expected: dict[str, int]) -> None:
    assert gpus(gres) == expected


@pytest.mark.parametrize(
    ("tasks", "count"),
    [("", 1), ("7", 1), ("0-9", 10), ("0-9,15%3", 11), ("0-20:5", 5), ("1,3,5-6", 4)],
)
def test_tasks_of_an_array_are_counted(tasks: str, count: int) -> None:
    assert task_count(tasks) == count


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu-[0-2,7],login,cpu-11", ["gpu-0", "gpu-1", "gpu-2", "gpu-7", "login", "cpu-11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("a-b.c[9-10]", ["a-b.c9", "a-b.c10"]),
    ],
)
def test_node_expressions_of_a_job_are_expanded(expression: str, names: list[str]) -> None:
    assert [*hosts(expression)] == names


@given(
    st.sets(
        st.builds(
            lambda prefix, number, width: f"{prefix}{number:0{width}d}",
            *(st.sampled_from(["cpu-", "gpu", "a.b-"]), st.integers(0, 30), st.integers(1, 3)),
        )
    )
)
def test_expansion_reverses_the_compression_of_node_names(names: set[str]) -> None:
    (job,) = parse([job_line(nodes=compress(names))]).jobs

    assert sorted(hosts(job.nodes)) == sorted(names)


def test_expansion_of_node_expressions_is_lazy() -> None:
    assert [*islice(hosts("n[0-999999999999]"), 2)] == ["n0", "n1"]


@pytest.mark.parametrize(
    ("tres", "memory", "gpus_wanted"),
    [
        ("cpu=1,mem=1000M,node=1,billing=1", 1000 * MIB, 0),
        ("cpu=1,mem=1.5G,node=1,gres/gpu=2,gres/gpu:h100=2", 1536 * MIB, 2),
        ("mem=2T", 2 << 40, 0),
        ("", 0, 0),
    ],
)
def test_resources_of_a_job_are_read(tres: str, memory: int, gpus_wanted: int) -> None:
    (job,) = parse([job_line(tres=tres)]).jobs

    assert (job.memory, job.gpus) == (memory, gpus_wanted)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_account_names_are_kept_unchanged(account: str) -> None:
    (job,) = parse([job_line(account=account)]).jobs

    assert job.account == account


def test_pending_job_may_have_several_partitions() -> None:
    (job,) = parse([job_line(state="PENDING", partitions="main,gpu")]).jobs

    assert isinstance(job, Job)
    assert job.partitions == ("main", "gpu")


@pytest.mark.parametrize(
    "line",
    [
        "job\tRUNNING\n",
        job_line(cpus="many"),
        job_line(tasks="0-"),
        job_line(tres="mem=lots"),
        job_line(nodes="cpu-[0-1"),
        job_line(nodes="cpu-[0-1]n"),
        job_line(nodes="cpu-[a-b],cpu-7"),
        job_line(nodes="cpu-0,,cpu-1"),
        job_line(start="soon"),
        "secret\thunter2\n",
        "\n",
    ],
)
def test_error_about_a_malformed_line_does_not_quote_it(line: str) -> None:
    with pytest.raises(UnexpectedError) as caught:
        parse([job_line(), line])

    assert str(caught.value).isprintable()
    assert "hunter2" not in str(caught.value)
