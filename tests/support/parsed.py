"""Slurm's files as data."""


def lines(text: str) -> list[str]:
    """What is no comment."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def words(line: str) -> dict[str, str]:
    """A line such as `NodeName=… CPUs=…`."""
    return dict(word.split("=", 1) for word in line.split())


def options(text: str) -> dict[str, str]:
    """`Key=value` lines; one that stands twice fails."""
    pairs = [line.split("=", 1) for line in lines(text) if " " not in line]
    found = dict(pairs)
    assert len(found) == len(pairs), "a key stands twice"
    return found


def records(text: str, kind: str) -> list[dict[str, str]]:
    """Lines such as `PartitionName=… Nodes=…`, as one mapping each."""
    return [words(line) for line in lines(text) if line.startswith(f"{kind}=")]
