"""Render topology.conf from the labels of the nodes' machines.

A *place* holds a machine's label for each level, from top to bottom, or "" for a missing label. A
*path* is the route from the top to a switch or a block: pairs of a level's number and a label.

slurmctld 24.11 exits if the file breaks one of these rules (sources: switch_record.c,
block_record.c):

- Names are unique, and have at most 64 characters. slurmctld reads them as hostlists.
- A switch contains either switches or nodes. The file defines all switches that a switch contains.
- A job runs only on nodes below one switch.
- A block has at least as many known nodes as the first of BlockSizes.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agents.blocks import block_lines, block_sizes
from agents.hostlist import compress, expand
from agents.reconciler.observed import Machine, Pod
from agents.reconciler.wanted import Levels, Topology

Place = tuple[str, ...]
Places = Mapping[str, Place]
"""Place of each node."""
Path = tuple[tuple[int, str], ...]

ROOT: Final = "all"
"""Switch above all other switches, so that a job can use nodes below different switches."""
UNPLACED: Final = "unplaced"
"""Switch of nodes without a label. If this switch is below another switch, the name begins with the
labels of the upper switch."""
MOST_SWITCHES: Final = 1000
"""Maximum number of switches. For each pair of switches, slurmctld and each slurmd compute the
distance through each other switch (source: switch_record.c). This takes some seconds for 1,000
switches, and hours for 10,000."""
HEAD: Final = "# Rendered from the labels of machines: see docs/topology.md.\n"
_NAME_LENGTH: Final = 60
_DIGITS: Final = re.compile(r"[0-9]{16,}$")
"""Final digits of a name. Slurm converts these digits to a number, which can be too large (source:
hostlist.c)."""


@dataclass(frozen=True)
class Rendered:
    text: str
    """topology.conf."""
    summary: str
    """Description of the file in a few words."""


def render(topology: Topology, places: Places) -> Rendered:
    return tree(places) if topology.kind == "tree" else blocks(places, topology.block_sizes)


# --- Places --------------------------------------------------------------------------------------


def find_places(
    nodes: Iterable[str],
    pods: Mapping[str, Pod],
    machines: Mapping[str, Machine],
    last: Places,
    levels: Levels,
) -> dict[str, Place]:
    """Return the place of each node. A node without a machine keeps its last place."""
    nowhere = ("",) * len(levels)
    found = {}
    for node in nodes:
        pod = pods.get(node)
        machine = machines.get(pod.machine) if pod else None
        found[node] = _place(machine, levels) if machine else last.get(node, nowhere)
    return found


def _place(machine: Machine, levels: Levels) -> Place:
    """Return the place of a machine: for each level, the first of the level's labels."""
    return tuple(
        next((machine.labels[key] for key in keys if machine.labels.get(key)), "")
        for keys in levels
    )


def dumps(places: Places, levels: Levels) -> str:
    nodes = defaultdict(list)
    for node, place in places.items():
        nodes["/".join(place)].append(node)  # labels have no '/'
    content = {place: compress(names) for place, names in nodes.items()}
    return json.dumps({"levels": levels, "places": content}, indent=1, sort_keys=True)


def loads(text: str, levels: Levels) -> dict[str, Place]:
    """Return the places in a text of `dumps`, or {} if the levels have changed since.

    An invalid text also gives {}. This does little harm, because only nodes without a machine need
    their last place.
    """
    try:
        content = json.loads(text)
        if content["levels"] != [list(keys) for keys in levels]:
            return {}
        return {
            node: tuple(place.split("/"))
            for place, names in content["places"].items()
            for node in expand(names)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


# --- Trees ---------------------------------------------------------------------------------------


def tree(places: Places) -> Rendered:
    """Render a tree. Omit the lowest levels if the tree would have more than `MOST_SWITCHES`."""
    whole = depth = max(map(len, places.values()), default=0)
    leaves, above = _switches(places, depth)
    while len(leaves) + len(above) > MOST_SWITCHES:
        depth -= 1
        leaves, above = _switches(places, depth)
    given = {(): ROOT if above else UNPLACED, ((depth, UNPLACED),): UNPLACED}
    names = _names((*leaves, *above), given)
    lines = [f"SwitchName={names[path]} Nodes={compress(leaves[path])}" for path in sorted(leaves)]
    for path in sorted(above):
        below = ",".join(names[each] for each in sorted(above[path]))
        lines.append(f"SwitchName={names[path]} Switches={below}")
    summary = f"{_count(len(leaves), 'leaf switch', 'leaf switches')} for {_nodes(places)}"
    if depth < whole:
        summary += (
            f"; without the lowest {_count(whole - depth, 'level')}, because all levels would "
            f"need more than {MOST_SWITCHES} switches; choose other labels in "
            "'slurm.topology.labels'"
        )
    return Rendered(_text(lines), summary)


def _switches(places: Places, depth: int) -> tuple[dict[Path, list[str]], dict[Path, set[Path]]]:
    """Return the nodes of each leaf switch, and the switches below each other switch."""
    leaves: defaultdict[Path, list[str]] = defaultdict(list)
    for node, place in places.items():
        leaves[_path(place[:depth])].append(node)
    above: defaultdict[Path, set[Path]] = defaultdict(set)
    for path in leaves:
        for length in range(len(path)):
            above[path[:length]].add(path[: length + 1])
    # A switch cannot contain both nodes and switches. So nodes without a lower label get a switch
    # of their own below the upper switch.
    for path in [path for path in leaves if path in above]:
        below = (*path, (depth, UNPLACED))
        leaves[below] = leaves.pop(path)
        above[path].add(below)
    if len(above.get((), ())) == 1:
        del above[()]
    return dict(leaves), dict(above)


def _path(place: Place) -> Path:
    return tuple((level, label) for level, label in enumerate(place) if label)


# --- Blocks --------------------------------------------------------------------------------------


def blocks(places: Places, sizes: Sequence[int] = ()) -> Rendered:
    """Render blocks: the nodes with the same labels down to the lowest level.

    Nodes without a label of the lowest level are in no block. If `sizes` are given, blocks with
    fewer nodes than the first size are left out, too. Blocks are sorted by their labels, because
    Slurm groups blocks that follow each other.
    """
    members: defaultdict[Path, list[str]] = defaultdict(list)
    for node, place in places.items():
        if place and place[-1]:
            members[_path(place)].append(node)
    sizes = sizes or block_sizes(map(len, members.values()))
    kept = {path: nodes for path, nodes in members.items() if len(nodes) >= sizes[0]}
    names = _names(kept)
    lines = block_lines({names[path]: kept[path] for path in sorted(kept)}, sizes)
    inside = {node for nodes in kept.values() for node in nodes}
    summary = f"{_count(len(kept), 'block')} with {_nodes(inside)}"
    if outside := places.keys() - inside:
        summary += f"; nodes in no block: {compress(outside)}"
    return Rendered(_text(lines), summary)


# --- Names ---------------------------------------------------------------------------------------


def _names(paths: Iterable[Path], given: Mapping[Path, str] | None = None) -> dict[Path, str]:
    """Return a unique name for each path.

    The name is the path's last label, if no other path has the same last label. Otherwise, the name
    contains all labels of the path. If this name is not unique or not valid, it ends in a digest.
    """
    names = dict(given or {})
    taken = {ROOT, UNPLACED, *names.values()}
    rest = sorted(set(paths) - names.keys())
    labels = Counter(_clean(path[-1][1]) for path in rest)
    for path in rest:
        words = [_clean(label) for _, label in path]
        name = words[-1]
        if labels[name] > 1 or name in taken:
            name = "_".join(words)
        if name in taken or len(name) > _NAME_LENGTH or _DIGITS.search(name):
            name = f"{name[: _NAME_LENGTH - 10]}-{_digest(path)}"
        taken.add(name)
        names[path] = name
    return names


def _clean(label: str) -> str:
    """Replace dots, because they separate the names of switches in SLURM_TOPOLOGY_ADDR."""
    return label.replace(".", "-")


def _digest(path: Path) -> str:
    return hashlib.sha256(repr(path).encode()).hexdigest()[:8]


# --- Text ----------------------------------------------------------------------------------------


def _text(lines: Sequence[str]) -> str:
    return HEAD + "".join(f"{line}\n" for line in lines)


def _nodes(nodes: Iterable[str]) -> str:
    return _count(len(set(nodes)), "node")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
