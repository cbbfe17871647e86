"""Which records are ghosts; and that nothing is concluded where nothing is known."""

from pathlib import Path

import httpx
import pytest

from agents.reconciler.__main__ import forget_ghosts
from agents.reconciler.ghosts import ghosts, is_wanted, wanted_nodesets
from agents.slurm import Client, Node, SlurmError


def node(name: str, *state: str, alloc_cpus: int = 0) -> Node:
    return Node(
        name=name,
        state=frozenset(state),
        reason="",
        reason_time=None,
        reason_user="",
        cpus=2,
        alloc_cpus=alloc_cpus,
        memory=1000,
        alloc_memory=0,
        gres="",
        gres_used="",
        features=(),
        partitions=(),
        comment="",
        extra="",
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cpu-0", True),
        ("cpu-1", True),
        ("cpu-2", False),
        ("gpu-0", False),
        ("big-mem-0", True),
        ("big-0", False),
        ("cpu", False),
        ("cpu-x", False),
        ("cpu--1", False),
        ("empty-0", False),
    ],
)
def test_a_node_is_wanted_while_its_nodeset_reaches_that_far(name: str, wanted: bool) -> None:
    assert is_wanted(name, {"cpu": 2, "big-mem": 1, "empty": 0}) is wanted


def test_only_what_is_gone_and_dynamic_and_free_and_unwanted_is_a_ghost() -> None:
    nodes = [
        node("cpu-0", "DOWN", "DYNAMIC_NORM"),
        node("old-2", "IDLE", "DRAIN", "NOT_RESPONDING", "DYNAMIC_NORM"),
        node("old-1", "DOWN", "DYNAMIC_NORM"),
        node("leaving-0", "MIXED", "DRAIN", "DYNAMIC_NORM"),
        node("busy-0", "MIXED", "NOT_RESPONDING", "DYNAMIC_NORM", alloc_cpus=1),
        node("static-0", "DOWN", "NOT_RESPONDING"),
    ]

    assert ghosts(nodes, {"cpu": 1}) == ["old-1", "old-2"]


def test_the_nodesets_are_read_as_kubernetes_lays_them(tmp_path: Path) -> None:
    data = tmp_path / "..2026"
    data.mkdir()
    (data / "cpu").write_text("2")
    (tmp_path / "..data").symlink_to(data)
    (tmp_path / "cpu").symlink_to("..data/cpu")

    assert wanted_nodesets(tmp_path) == {"cpu": 2}


def test_where_the_nodesets_cannot_be_told_nothing_is_asked_for(tmp_path: Path) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(200, json={"nodes": [], "pings": []})

    client = Client("http://rest", lambda: "token", transport=httpx.MockTransport(answer))
    with pytest.raises(OSError, match="nowhere"):
        forget_ghosts(client, tmp_path / "nowhere")
    (tmp_path / "cpu").write_text("two")
    with pytest.raises(ValueError, match="two"):
        forget_ghosts(client, tmp_path)
    assert set(asked) == {"GET"}


def test_where_slurm_cannot_be_asked_nothing_is_deleted(tmp_path: Path) -> None:
    asked = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        raise httpx.ConnectError("no way")

    client = Client(
        "http://rest",
        lambda: "token",
        transport=httpx.MockTransport(refuse),
        sleep=lambda _: None,
    )
    with pytest.raises(SlurmError, match="unreachable"):
        forget_ghosts(client, tmp_path)
    assert set(asked) == {"GET"}
