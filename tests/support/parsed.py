"""Parse Slurm's files into data."""


def lines(text: str) -> list[str]:
    """Return the lines that are neither empty nor a comment."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def words(line: str) -> dict[str, str]:
    """Parse a line such as `NodeName=… CPUs=…`."""
    return dict(word.split("=", 1) for word in line.split())


def options(text: str) -> dict[str, str]:
    """Parse `Key=value` lines. Raises AssertionError for a duplicate key."""
    pairs = [line.split("=", 1) for line in lines(text) if " " not in line]
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key occurs twice: {pairs}"
    return found


def records(text: str, kind: str) -> list[dict[str, str]]:
    """Parse lines such as `PartitionName=… Nodes=…` into one mapping each."""
    return [words(line) for line in lines(text) if line.startswith(f"{kind}=")]
