"""A fault: one small change of the product's code, and the test that must fail."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Area: TypeAlias = Literal[
    "settings", "slurmconf", "components", "agents", "engine", "spank", "images", "policy"
]
Tier: TypeAlias = Literal["unit", "container", "cluster"]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
"""Requirements of the tests: nothing, containers, or a cluster."""


class StaleError(Exception):
    """A row does not match the code. The exception's message is one line with the remedy."""


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    """The fault in a short sentence: "two users may have the same uid"."""
    area: Area
    file: str
    """Path from the root of the repository."""
    old: str
    """Text that occurs exactly once in the file."""
    new: str
    """Text that replaces `old`."""
    test: str | tuple[str, ...]
    """Node id of the test that must fail. If there are several node ids, each test must fail."""
    tier: Tier = "unit"
    setup_may_fail: bool = False
    """Whether an error in the test's setup also detects the fault, because the setup uses the
    changed code."""

    @property
    def tests(self) -> tuple[str, ...]:
        return (self.test,) if isinstance(self.test, str) else self.test

    def applied(self, text: str) -> str:
        """Return the file's text with the fault.

        Raises StaleError if the row does not match the text.
        """
        count = text.count(self.old)
        if count != 1:
            raise StaleError(
                f"'{self.name}': {self.file} has the row's old text {count} times, expected once; "
                f"correct old and new in tests/mutants/table/{self.area}.py"
            )
        return text.replace(self.old, self.new)
