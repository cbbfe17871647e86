"""The real slurmctld accepts each topology.conf that the labels of machines define.

The tests also compare slurmctld with the rules in tests/support/topologyconf.py.

The image's script `gather-config` chooses the file that slurmctld reads.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agents.hostlist import expand
from agents.reconciler.topology import Place, blocks, tree
from components import conventions as c
from components.settings import Settings
from components.slurmconf import config_files
from tests.support.containers import put
from tests.support.slurmctld import Slurmctld
from tests.support.stack import alone
from tests.support.topologyconf import parse, refusals
from tests.support.waiting import eventually

NODES = tuple(f"cpu-{ordinal}" for ordinal in range(24))
COMMON = ("", "a", "b", "A", "1", "01", "a.b", "a-b", "all", "unplaced", "x-7", "b_a")
UNUSUAL = ("x" * 63, "9" * 63, "0" * 20, "a" + "9" * 40, "a-" + "0" * 25, "5f1c-2.32767", "a.b.c")
NO_BLOCKS = r"No blocks configured"
"""slurmctld's message for a topology.conf without blocks. slurmctld accepts the file."""
UNKNOWN_NODE = r"lookup failure for node"
"""slurmctld's message for a node that is in the tree but not in slurm.conf. slurmctld ignores the
node."""
FOLDER = f"{c.CONTROLLER_RUN}/etc"


def settings(kind: str, nodes: int = len(NODES)) -> Settings:
    """Return settings in which labels define the topology of some nodes."""
    nodeset = {
        "name": "cpu",
        "kind": "static",
        "replicas": nodes,
        "cpus": 8,
        "memory": "32GiB",
    }
    topology = {"kind": kind, "labels": ["zone"]}
    return alone(lambda v: v.update(nodesets=[nodeset], slurm={"topology": topology}))


def places(seed: int) -> dict[str, Place]:
    """Return random labels of all nodes' machines, for one to four levels of the topology."""
    choose = random.Random(seed)
    labels = [
        choose.sample(COMMON, choose.randint(1, 4)) + choose.sample(UNUSUAL, choose.randint(0, 2))
        for _ in range(choose.randint(1, 4))
    ]
    return {node: tuple(map(choose.choice, labels)) for node in NODES}


def start(slurmctld: Slurmctld, kind: str, text: str) -> None:
    config = settings(kind)
    slurmctld.install(config, {**config_files(config), "topology.conf": text})
    slurmctld.start()


def shown(slurmctld: Slurmctld, kind: str) -> dict[str, set[str]]:
    """Return the nodes of each switch or block, as slurmctld shows them."""
    text = slurmctld.run("scontrol show topology || true")
    found = re.findall(rf"^{kind}Name=(\S+) .*?Nodes=(\S+)", text, re.MULTILINE)
    return {name: set(expand(nodes)) for name, nodes in found}


@pytest.mark.parametrize("seed", range(12))
def test_slurmctld_accepts_a_tree_of_random_labels(seed: int, slurmctld: Slurmctld) -> None:
    text = tree(places(seed)).text

    start(slurmctld, "tree", text)

    assert refusals(text, NODES) == []
    assert slurmctld.errors() == []
    assert "no switch can reach all nodes" not in slurmctld.log()
    conf = parse(text)
    names = (*conf.switches, *conf.leaves)
    assert shown(slurmctld, "Switch") == {name: conf.below(name) for name in names}
    levels = re.findall(
        r"^SwitchName=(\S+) Level=(\d+)", slurmctld.run("scontrol show topology"), re.M
    )
    assert dict(levels) == {name: str(conf.level(name)) for name in names}


@pytest.mark.parametrize("seed", range(12))
def test_slurmctld_accepts_blocks_of_random_labels(seed: int, slurmctld: Slurmctld) -> None:
    text = blocks(places(seed), (2, 4, 8) if seed % 2 else ()).text

    start(slurmctld, "block", text)

    assert refusals(text, NODES) == []
    assert slurmctld.errors(NO_BLOCKS) == []
    assert shown(slurmctld, "Block") == {
        name: set(nodes) for name, nodes in parse(text).blocks.items()
    }


STATIC: dict[str, dict[str, Any]] = {
    "tree": {
        "switches": [
            {"name": "top", "switches": ["left", "right"]},
            {"name": "left", "nodesets": ["many"]},
            {"name": "right", "switches": ["far"]},
            {"name": "far", "nodesets": ["none"]},
        ]
    },
    "block": {
        "blocks": [
            {"name": "left", "nodesets": ["many"]},
            {"name": "middle", "nodesets": ["few"]},
            {"name": "right", "nodesets": ["none"]},
        ]
    },
}


@pytest.mark.parametrize("kind", STATIC)
def test_slurmctld_accepts_topology_with_small_and_empty_nodesets(
    kind: str, slurmctld: Slurmctld
) -> None:
    nodesets = [
        {"name": name, "kind": "static", "replicas": nodes, "cpus": 8, "memory": "32GiB"}
        for name, nodes in (("many", 4), ("few", 3), ("none", 0))
    ]
    topology = {"kind": kind, **STATIC[kind]}
    slurmctld.install(alone(lambda v: v.update(nodesets=nodesets, slurm={"topology": topology})))

    slurmctld.start()

    assert slurmctld.errors() == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("tree", "SwitchName=a Nodes=cpu-0\nSwitchName=a Nodes=cpu-1\n"),
        ("tree", "SwitchName=a Nodes=cpu-0\nSwitchName=b Switches=c\n"),
        ("tree", f"SwitchName={'a' * 65} Nodes=cpu-0\n"),
        ("tree", f"SwitchName=a{'9' * 40} Nodes=cpu-0\nSwitchName=b Switches=a{'9' * 40}\n"),
        ("tree", "SwitchName=a\n"),
        ("block", "BlockName=a Nodes=cpu-0\nBlockSizes=2\n"),
        ("block", "BlockName=a Nodes=left-[0-3]\nBlockSizes=2\n"),
        ("block", "BlockName=a Nodes=cpu-[0-3]\nBlockSizes=2,6\n"),
        ("block", "BlockName=a Nodes=cpu-[0-1]\nBlockName=a Nodes=cpu-[2-3]\nBlockSizes=2\n"),
    ],
)
def test_function_refusals_reports_each_file_that_slurmctld_refuses(
    kind: str, text: str, slurmctld: Slurmctld
) -> None:
    assert refusals(text, NODES)

    with pytest.raises(AssertionError, match="does not start"):
        start(slurmctld, kind, text)


def test_topology_changes_without_a_restart_of_slurmctld(slurmctld: Slurmctld) -> None:
    start(slurmctld, "tree", tree(dict.fromkeys(NODES, ("a",))).text)
    process = slurmctld.run("pgrep -ox slurmctld")
    other = tree({node: ("b" if node == "cpu-7" else "a",) for node in NODES}).text

    put(slurmctld.container, {f"{c.SLURM_ETC}/topology.conf": other})
    slurmctld.run("scontrol reconfigure")

    eventually(
        "slurmctld uses the new topology",
        lambda: shown(slurmctld, "Switch").get("b") == {"cpu-7"},
    )
    assert slurmctld.run("pgrep -ox slurmctld") == process


# --- The file that slurmctld reads ---------------------------------------------------------------


def gathered(slurmctld: Slurmctld, config: Settings, written: str) -> str:
    """Return the topology.conf that the image's script chooses, after slurmctld has read it."""
    slurmctld.install(config)
    put(slurmctld.container, {f"{c.TOPOLOGY}/topology.conf": written} if written else {})
    slurmctld.run(f"{c.PROGRAMS}/gather-config {c.SLURM_ETC} {FOLDER}")
    text = slurmctld.run(f"cat {FOLDER}/topology.conf")
    slurmctld.run(f"rm -rf {c.TOPOLOGY}", user="root")
    slurmctld.install(config, {**config_files(config), "topology.conf": text})
    slurmctld.start()
    assert slurmctld.errors(NO_BLOCKS, UNKNOWN_NODE) == []
    return text


TREE = tree({node: (f"rack-{i % 3}",) for i, node in enumerate(NODES)}).text
BLOCKS = blocks({node: (f"rack-{i % 3}",) for i, node in enumerate(NODES)}).text


@pytest.mark.parametrize(("kind", "text"), [("tree", TREE), ("block", BLOCKS)])
def test_slurmctld_gets_the_topology_of_the_reconciler(
    kind: str, text: str, slurmctld: Slurmctld
) -> None:
    assert parse(gathered(slurmctld, settings(kind), text)) == parse(text)


def test_all_nodes_share_a_switch_before_the_first_topology(slurmctld: Slurmctld) -> None:
    text = gathered(slurmctld, settings("tree"), "")

    assert parse(text).leaves == {"unplaced": NODES}


@pytest.mark.parametrize(("kind", "text"), [("tree", BLOCKS), ("block", TREE)])
def test_topology_of_another_kind_is_ignored(kind: str, text: str, slurmctld: Slurmctld) -> None:
    found = parse(gathered(slurmctld, settings(kind), text))

    assert found.leaves == ({"unplaced": NODES} if kind == "tree" else {})
    assert found.blocks == {}


def test_blocks_with_nodes_that_left_are_ignored(slurmctld: Slurmctld) -> None:
    fewer = settings("block", nodes=len(NODES) - 1)

    assert parse(gathered(slurmctld, fewer, BLOCKS)).blocks == {}


def test_tree_with_nodes_that_left_is_kept(slurmctld: Slurmctld) -> None:
    fewer = settings("tree", nodes=len(NODES) - 1)

    assert parse(gathered(slurmctld, fewer, TREE)) == parse(TREE)


def test_topology_without_nodes_is_accepted(slurmctld: Slurmctld) -> None:
    slurmctld.install(settings("tree", nodes=0))

    slurmctld.run(f"{c.PROGRAMS}/gather-config {c.SLURM_ETC} {FOLDER}")

    assert parse(slurmctld.run(f"cat {FOLDER}/topology.conf")).leaves == {}


@pytest.fixture
def written(slurmctld: Slurmctld) -> Iterator[Slurmctld]:
    """slurmctld, with a topology that the reconciler has written."""
    slurmctld.install(settings("tree"))
    put(slurmctld.container, {f"{c.TOPOLOGY}/topology.conf": TREE})
    slurmctld.run(f"rm -f {c.CONTROLLER_SPOOL}/lease", user="root")
    yield slurmctld
    slurmctld.stop()
    slurmctld.run(f"rm -rf {c.TOPOLOGY} {c.CONTROLLER_SPOOL}/lease", user="root")


def test_controller_starts_and_reconfigures_with_the_written_topology(written: Slurmctld) -> None:
    written.run(f"POD_UID=one {c.PROGRAMS}/slurmctld >/tmp/log 2>&1 &")
    expected = parse(TREE).leaves["rack-1"]
    eventually(
        "slurmctld uses the topology",
        lambda: shown(written, "Switch").get("rack-1") == set(expected),
    )

    other = tree(dict.fromkeys(NODES, ("rack-9",))).text
    put(written.container, {f"{c.TOPOLOGY}/topology.conf": other})
    written.run(f"{c.PROGRAMS}/gather-config {c.SLURM_ETC} {FOLDER} && scontrol reconfigure")

    eventually(
        "slurmctld uses the new topology",
        lambda: shown(written, "Switch") == {"rack-9": set(NODES)},
    )
    assert written.errors() == []


def test_second_run_of_gather_config_replaces_the_first_copy(slurmctld: Slurmctld) -> None:
    slurmctld.install(settings("tree"))
    for _ in range(2):
        slurmctld.run(f"{c.PROGRAMS}/gather-config {c.SLURM_ETC} {FOLDER}")

    assert slurmctld.run(f"ls -d {FOLDER}.* | wc -l").strip() == "1"
    assert slurmctld.run(f"cmp {c.SLURM_ETC}/slurm.conf {FOLDER}/slurm.conf") == ""
