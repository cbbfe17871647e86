"""Parse topology.conf as Slurm 24.11 does, check Slurm's rules, and compute nodes' addresses."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from agents.hostlist import expand

MOST_CHARACTERS = 64
"""Maximum length of the name of a switch or block, HOST_NAME_MAX in Linux."""
LARGEST_NUMBER = 2**64 - 1
"""Largest number that Slurm can read at the end of a name in a hostlist."""
_WORD = re.compile(r"(\w+)=(\S+)")


@dataclass
class TopologyConf:
    switches: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Switches below each switch."""
    leaves: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes below each leaf switch."""
    blocks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    refusals: list[str] = field(default_factory=list)
    """Reasons why the file cannot be read."""

    def switch_of(self, node: str) -> str:
        return next(name for name, nodes in self.leaves.items() if node in nodes)

    def level(self, name: str) -> int:
        return 1 + max(map(self.level, self.switches[name])) if name in self.switches else 0

    def address(self, node: str) -> str:
        """Return SLURM_TOPOLOGY_ADDR: the switches from the top level down, then the node."""
        for name, nodes in self.blocks.items():
            if node in nodes:
                return f"{name}.{node}"
        names = (*self.switches, *self.leaves)
        above = {self.level(name): name for name in names if node in self.below(name)}
        top = max(map(self.level, names))
        return ".".join((*(above.get(level, "") for level in range(top, -1, -1)), node))

    def below(self, name: str) -> set[str]:
        """Return the nodes below a switch."""
        if name in self.leaves:
            return set(self.leaves[name])
        return set().union(*map(self.below, self.switches[name]))


def parse(text: str) -> TopologyConf:
    conf = TopologyConf()
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        words = dict(_WORD.findall(line))
        if " ".join(f"{key}={value}" for key, value in words.items()) != line:
            conf.refusals.append(f"{line}: expected only words Key=value, each key once")
        match words:
            case {"SwitchName": name, "Nodes": nodes, **rest} if not rest:
                _add(conf, conf.leaves, name, expand(nodes))
            case {"SwitchName": name, "Switches": names, **rest} if not rest:
                _add(conf, conf.switches, name, tuple(names.split(",")))
            case {"BlockName": name, "Nodes": nodes, **rest} if not rest:
                _add(conf, conf.blocks, name, expand(nodes))
            case {"BlockSizes": sizes, **rest} if not rest:
                conf.sizes = tuple(map(int, sizes.split(",")))
            case _:
                conf.refusals.append(f"{line}: unknown combination of keys")
    return conf


def _add(
    conf: TopologyConf, place: dict[str, tuple[str, ...]], name: str, below: tuple[str, ...]
) -> None:
    if name in {*conf.leaves, *conf.switches, *conf.blocks}:
        conf.refusals.append(f"{name}: this switch or block is defined twice")
    place[name] = below


def refusals(text: str, known: Collection[str]) -> list[str]:
    """Return the reasons why slurmctld would refuse or misread the file.

    `known` are the nodes that slurmctld knows.

    Source of the rules: plugins/topology/tree/switch_record.c and
    plugins/topology/block/block_record.c in Slurm.
    """
    conf = parse(text)
    return [*conf.refusals, *_names(conf), *_tree(conf), *_blocks(conf, known), *_placed(conf)]


def _names(conf: TopologyConf) -> Iterator[str]:
    for name in (*conf.switches, *conf.leaves, *conf.blocks):
        if len(name) > MOST_CHARACTERS:
            yield f"{name}: the name has more than {MOST_CHARACTERS} characters"
        if not re.fullmatch(r"[-A-Za-z0-9_]+", name):
            yield f"{name}: the name contains other characters than letters, digits, - and _"
        number = re.search(r"[0-9]*$", name)
        if number and int(number[0] or 0) > LARGEST_NUMBER:
            yield f"{name}: the number at the end of the name exceeds {LARGEST_NUMBER}"


def _tree(conf: TopologyConf) -> Iterator[str]:
    parents: dict[str, str] = {}
    for name, below in conf.switches.items():
        for child in below:
            if child not in conf.switches and child not in conf.leaves:
                yield f"{name}: the switch {child} below {name} is not defined"
            if child in parents:
                yield f"{child}: this switch is below two switches, {parents[child]} and {name}"
            parents[child] = name
    if len({*conf.switches, *conf.leaves} - parents.keys()) > 1:
        yield "the tree has several top switches; expected one"


def _blocks(conf: TopologyConf, known: Collection[str]) -> Iterator[str]:
    if not conf.blocks:
        return
    first = conf.sizes[0] if conf.sizes else 0
    for size in conf.sizes:
        factor, rest = divmod(size, first) if first > 0 else (0, 1)
        if rest or factor & (factor - 1) or factor > 2**15:
            yield f"BlockSizes: {size} is not {first} times a power of two"
    for name, nodes in conf.blocks.items():
        if len(set(nodes) & set(known)) < max(first, 1):
            yield f"{name}: the block has fewer than {max(first, 1)} known nodes"


def _placed(conf: TopologyConf) -> Iterator[str]:
    seen: set[str] = set()
    groups: Mapping[str, tuple[str, ...]] = {**conf.leaves, **conf.blocks}
    for name, nodes in groups.items():
        for node in nodes:
            if node in seen:
                yield f"{node}: this node is listed twice, the second time in {name}"
            seen.add(node)
