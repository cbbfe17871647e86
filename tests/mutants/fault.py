"""A fault: one small change of the product's text, and the test that must fail."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Area: TypeAlias = Literal[
    "settings", "slurmconf", "components", "agents", "engine", "spank", "images", "policy"
]
Tier: TypeAlias = Literal["unit", "container", "cluster"]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
"""Needs of the tests: nothing, containers, or a cluster."""


class StaleError(Exception):
    """A row does not fit the code any more; one line that says what to do."""


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    """The fault in a short sentence: "a second user may have the uid of another"."""
    area: Area
    file: str
    """Path from the root of the repository."""
    old: str
    """A text that occurs exactly once in the file."""
    new: str
    """What takes its place."""
    test: str | tuple[str, ...]
    """Node id of the test that must fail; where there are several, each must."""
    tier: Tier = "unit"
    setup_may_fail: bool = False
    """Whether an error in the test's set-up counts as well: the fault breaks what is tested."""

    @property
    def tests(self) -> tuple[str, ...]:
        return (self.test,) if isinstance(self.test, str) else self.test

    def applied(self, text: str) -> str:
        """The file's text with the fault. Raises StaleError where the row does not fit the text."""
        found = text.count(self.old)
        if found != 1:
            raise StaleError(
                f"'{self.name}': {self.file} has the row's old text {found} times, expected once; "
                f"correct old and new in tests/mutants/table/{self.area}.py"
            )
        return text.replace(self.old, self.new)
