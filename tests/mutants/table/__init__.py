"""The table of all faults. Each module contains the faults of one area of the code."""

from typing import Final

from tests.mutants.fault import Fault
from tests.mutants.table import (
    agents,
    components,
    engine,
    images,
    policy,
    settings,
    slurmconf,
    spank,
)

FAULTS: Final[tuple[Fault, ...]] = (
    *settings.FAULTS,
    *slurmconf.FAULTS,
    *components.FAULTS,
    *agents.FAULTS,
    *engine.FAULTS,
    *spank.FAULTS,
    *images.FAULTS,
    *policy.FAULTS,
)
