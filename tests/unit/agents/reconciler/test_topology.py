"""The reconciler renders topology.conf from the labels of machines.

The place of a node consists of the labels of its machine, such as its zone and its rack.
"""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.reconciler.topology import (
    MOST_SWITCHES,
    Place,
    blocks,
    dumps,
    find_places,
    loads,
    tree,
)
from tests.support.topologyconf import TopologyConf, parse, refusals
from tests.unit.agents.reconciler.things import machine, pod

LEVELS = (("zone",), ("rack", "rack-id"), ("leaf",))
LABEL = st.one_of(
    # Draw from a few labels, so that several levels and machines have the same label.
    st.sampled_from(["", "a", "b", "all", "unplaced", "a.b", "a-b", "1", "01", "a_b"]),
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True),
    st.from_regex(r"[a-z]?[0-9]{15,63}", fullmatch=True).map(lambda label: label[:63]),
)
PLACES = st.integers(1, 4).flatmap(
    lambda levels: st.lists(st.tuples(*[LABEL] * levels), max_size=12)
)


def named(places: list[Place]) -> dict[str, Place]:
    return {f"cpu-{ordinal}": place for ordinal, place in enumerate(places)}


def of_tree(*places: Place) -> TopologyConf:
    return parse(tree(named(list(places))).text)


# --- Every file is valid -------------------------------------------------------------------------


@given(PLACES)
def test_tree_of_any_labels_is_valid_and_contains_every_node(places: list[Place]) -> None:
    nodes = named(places)

    text = tree(nodes).text

    assert refusals(text, nodes) == []
    assert {node for below in parse(text).leaves.values() for node in below} == nodes.keys()


@given(PLACES, st.integers(0, 5))
def test_blocks_of_any_labels_are_valid(places: list[Place], size: int) -> None:
    nodes = named(places)

    text = blocks(nodes, (size, 2 * size) if size else ()).text

    assert refusals(text, nodes) == []


@given(PLACES)
def test_nodes_on_one_leaf_switch_are_those_with_equal_labels(places: list[Place]) -> None:
    conf = parse(tree(named(places)).text)
    for first, place in named(places).items():
        for second, other in named(places).items():
            same = conf.switch_of(first) == conf.switch_of(second)
            assert same == (place == other)


@given(PLACES, st.randoms())
def test_file_does_not_depend_on_the_order_of_nodes(places: list[Place], chance: Random) -> None:
    nodes = list(named(places).items())
    chance.shuffle(nodes)

    assert tree(dict(nodes)) == tree(named(places))
    assert blocks(dict(nodes)) == blocks(named(places))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[LABEL] * n), max_size=12)))
def test_restarted_reconciler_knows_the_places_of_nodes(places: list[Place]) -> None:
    levels = tuple((f"level-{i}",) for i in range(len(places[0]) if places else 1))

    assert loads(dumps(named(places), levels), levels) == named(places)


# --- Trees ---------------------------------------------------------------------------------------


def test_address_of_a_node_consists_of_its_labels() -> None:
    conf = of_tree(("eu-1", "r1", "l1"), ("eu-1", "r1", "l2"), ("eu-1", "r2", "l3"))

    assert conf.address("cpu-0") == "eu-1.r1.l1.cpu-0"
    assert conf.address("cpu-2") == "eu-1.r2.l3.cpu-2"


def test_one_switch_is_above_several_zones() -> None:
    conf = of_tree(("eu-1",), ("eu-2",))

    assert conf.switches == {"all": ("eu-1", "eu-2")}
    assert conf.address("cpu-1") == "all.eu-2.cpu-1"


def test_nodes_without_labels_share_a_switch() -> None:
    conf = of_tree(("eu-1", "r1", ""), ("", "", ""), ("", "", ""))

    assert conf.leaves["unplaced"] == ("cpu-1", "cpu-2")
    assert conf.switches["all"] == ("eu-1", "unplaced")


def test_nodes_without_the_lower_label_share_an_own_switch() -> None:
    conf = of_tree(("eu-1", "r1"), ("eu-1", ""))

    assert conf.switches == {"eu-1": ("r1", "eu-1_unplaced")}
    assert conf.leaves["eu-1_unplaced"] == ("cpu-1",)


def test_missing_level_between_two_levels_is_skipped() -> None:
    conf = of_tree(("eu-1", "", "l1"), ("eu-1", "r1", "l2"))

    assert conf.address("cpu-0") == "eu-1..l1.cpu-0"
    assert conf.address("cpu-1") == "eu-1.r1.l2.cpu-1"


def test_switch_name_contains_the_zone_if_two_zones_share_a_label() -> None:
    conf = of_tree(("eu-1", "r1"), ("eu-2", "r1"))

    assert conf.address("cpu-0") == "all.eu-1.eu-1_r1.cpu-0"
    assert conf.address("cpu-1") == "all.eu-2.eu-2_r1.cpu-1"


def test_dots_of_labels_do_not_divide_addresses() -> None:
    assert of_tree(("5f1c.1",)).address("cpu-0") == "5f1c-1.cpu-0"


@pytest.mark.parametrize("label", ["x" * 63, "9" * 63, "leaf-" + "0" * 30])
def test_label_that_slurm_would_misread_is_shortened_with_a_digest(label: str) -> None:
    (name,) = of_tree((label,)).leaves

    assert name.startswith(label[:50])
    assert len(name) < 64


def test_tree_omits_levels_that_would_have_too_many_switches() -> None:
    places = {f"cpu-{i}": ("eu-1", f"r{i % 10}", f"host-{i}") for i in range(MOST_SWITCHES)}

    made = tree(places)

    conf = parse(made.text)
    assert sorted(conf.leaves) == sorted(f"r{i}" for i in range(10))
    assert "without the lowest 1 level, because" in made.summary


def test_all_nodes_share_a_switch_if_no_machine_has_labels() -> None:
    conf = of_tree(("", ""), ("", ""))

    assert conf.leaves == {"unplaced": ("cpu-0", "cpu-1")}
    assert conf.switches == {}


def test_topology_without_nodes_has_no_lines() -> None:
    assert parse(tree({}).text) == parse(blocks({}).text) == TopologyConf()


# --- Blocks --------------------------------------------------------------------------------------


def test_block_sizes_default_to_the_smallest_block_and_its_multiples() -> None:
    conf = parse(blocks(named([("n1",), ("n1",), ("n2",), ("n2",), ("n2",)])).text)

    assert conf.blocks == {"n1": ("cpu-0", "cpu-1"), "n2": ("cpu-2", "cpu-3", "cpu-4")}
    assert conf.sizes == (2, 4, 8, 16, 32)


def test_blocks_with_the_same_upper_labels_are_adjacent() -> None:
    conf = parse(blocks(named([("z2", "a"), ("z1", "c"), ("z2", "b"), ("z1", "d")])).text)

    assert list(conf.blocks) == ["c", "d", "a", "b"]


def test_nodes_without_labels_or_in_small_blocks_are_in_no_block() -> None:
    made = blocks(named([("n1",), ("n1",), ("n2",), ("",)]), (2,))

    assert parse(made.text).blocks == {"n1": ("cpu-0", "cpu-1")}
    assert made.summary == "1 block with 2 nodes; nodes in no block: cpu-[2-3]"


def test_node_with_only_an_upper_label_is_in_no_block() -> None:
    assert parse(blocks(named([("z1", ""), ("z1", "n1")])).text).blocks == {"n1": ("cpu-1",)}


# --- Places --------------------------------------------------------------------------------------


def find(labels: Mapping[str, str], last: Mapping[str, Place] | None = None) -> dict[str, Place]:
    pods = {name: pod(name) for name in ("cpu-0", "cpu-1")}
    machines = {"machine-0": machine("machine-0", labels=labels)}
    return find_places(("cpu-0", "cpu-1", "cpu-2"), pods, machines, last or {}, LEVELS)


def test_place_of_a_node_consists_of_its_machines_labels() -> None:
    assert find({"zone": "eu-1", "rack": "r1", "leaf": "l1"})["cpu-0"] == ("eu-1", "r1", "l1")


def test_place_contains_the_first_label_that_the_machine_has() -> None:
    assert find({"rack-id": "r2"})["cpu-0"] == ("", "r2", "")
    assert find({"rack-id": "r2", "rack": "r1"})["cpu-0"] == ("", "r1", "")


def test_node_without_a_machine_keeps_its_last_place() -> None:
    last = dict.fromkeys(("cpu-0", "cpu-1", "cpu-2"), ("eu-9", "r9", "l9"))

    found = find({"zone": "eu-1"}, last)

    assert found["cpu-0"] == ("eu-1", "", "")
    assert found["cpu-1"] == found["cpu-2"] == ("eu-9", "r9", "l9")


def test_new_node_without_a_machine_has_no_place() -> None:
    assert find({})["cpu-2"] == ("", "", "")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"levels": 1}', '{"levels": [["a"]]}'])
def test_invalid_places_are_forgotten(text: str) -> None:
    assert loads(text, (("a",),)) == {}


def test_places_are_forgotten_after_the_levels_change() -> None:
    text = dumps({"cpu-0": ("eu-1",)}, (("zone",),))

    assert loads(text, (("rack",),)) == {}
