"""Metrics of the reconciler: what its last pass found, and what its passes have done so far.

A series of its own has only a node that is not as it should be, or what is counted of nodes, from 0
on: Prometheus takes what a counter begins with for older than itself. docs/metrics.md has all of
them as a table; a test holds the two together.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.metrics import Metric
from agents.reconciler.memory import Key
from agents.reconciler.plan import Plan
from agents.reconciler.wanted import Step

IN_AND_OUT = ("drain", "lift")
"""Steps that are counted of every wanted node, also where none was taken."""
NONE, PERSON = "none", "person"
"""Where no step of the ladder has been taken, and where none is left, or none can be."""

PASSES = Metric(
    "slurmstack_reconciler_passes_total",
    "Looks at all nodes; `failed` are those in which not everybody could be asked.",
    *("passes", ("result",), "counter"),
)
LAST_PASS = Metric(
    "slurmstack_reconciler_last_pass_timestamp_seconds",
    "When the last one was `done`.",
    "Unix time",
)
PASS_SECONDS = Metric(
    "slurmstack_reconciler_pass_duration_seconds",
    "How long the last one took, `failed` or not.",
    "seconds",
)
STEPS = Metric(
    "slurmstack_steps_total",
    "Steps that were taken: `drain`, `lift`, `restart`, `reboot`, `replace`.",
    *("steps", ("node", "step"), "counter"),
)
SILENCES = Metric(
    "slurmstack_node_silences_total",
    "How often a wanted node fell silent: slurmctld has it as down or not responding.",
    *("times", ("node",), "counter"),
)
WANTED = Metric("slurmstack_nodes_wanted", "Nodes that the settings want.", "nodes")
IN_SERVICE = Metric("slurmstack_nodes_in_service", "Those of them that are in service.", "nodes")
WITHOUT_MUNGED = Metric(
    "slurmstack_nodes_without_munged",
    "Wanted nodes whose munged does not run, or was started again within the last five minutes.",
    "nodes",
)
UNCHECKED = Metric(
    "slurmstack_nodes_unchecked",
    "Nodes in service whose checks have not told anything for three intervals, or ever.",
    "nodes",
)
FINDINGS = Metric("slurmstack_findings", "Nodes with a finding.", "nodes", ("finding",))
NODE_FINDING = Metric(
    "slurmstack_node_finding",
    "1 for each finding of a node, with the step that was tried last against it.",
    *("", ("node", "finding", "step")),
)
METRICS = (
    *(PASSES, LAST_PASS, PASS_SECONDS, STEPS, SILENCES),
    *(WANTED, IN_SERVICE, WITHOUT_MUNGED, UNCHECKED, FINDINGS, NODE_FINDING),
)
"""All of them; those of nodes begin with those that are wanted."""


def of_nodes(plan: Plan, taken: Mapping[Key, Step]) -> Iterator[Family]:
    """How nodes stood in a pass, after which `taken` are the steps that were tried last."""
    # The same may be found twice, as two announcements of maintenance.
    found: dict[Key, bool] = {}
    for out in plan.out:
        key = (out.node, out.cause)
        found[key] = found.get(key, False) or out.needs_person
    yield WANTED.value(plan.wanted)
    yield IN_SERVICE.value(plan.in_service)
    yield WITHOUT_MUNGED.value(plan.without_munged)
    if plan.unchecked is not None:
        yield UNCHECKED.value(plan.unchecked)
    yield FINDINGS.family(sorted(Counter(cause for _, cause in found).items()))
    yield NODE_FINDING.family(
        ((*key, PERSON if needs_person else taken.get(key, NONE)), 1)
        for key, needs_person in found.items()
    )


@dataclass(eq=False)
class Passes(Collector):
    """What is scraped: made once by each pass, when it is over, however often it is asked for."""

    steps: Mapping[tuple[str, str], int]
    """How often each step was taken, by node and step; it goes on counting."""
    clock: Callable[[], float]
    """Unix time."""

    def __post_init__(self) -> None:
        self._results = {"done": 0, "failed": 0}
        self._last: float | None = None
        self._nodes: tuple[str, ...] = ()
        self._away: frozenset[str] | None = None
        self._silences: Counter[str] = Counter()
        self._shown = tuple(self._own())

    def begin(self, nodes: Iterable[str]) -> None:
        """A pass begins, with these nodes wanted; before the first, nothing is counted of them."""
        self._nodes = tuple(nodes)
        if not any(self._results.values()):
            self._shown = tuple(self._own())

    def done(self, seconds: float, plan: Plan, taken: Mapping[Key, Step]) -> None:
        """A pass is over that took so many seconds."""
        self._results["done"] += 1
        self._last = self.clock()
        if self._away is not None:
            self._silences.update(plan.away - self._away)
        self._away = plan.away
        self._shown = (*self._own(seconds), *of_nodes(plan, taken))

    def failed(self, seconds: float) -> None:
        """A pass is over that did not get to its end: of nodes, nothing is known."""
        self._results["failed"] += 1
        self._shown = tuple(self._own(seconds))

    def collect(self) -> Iterable[Family]:
        return self._shown

    def _own(self, seconds: float | None = None) -> Iterator[Family]:
        yield PASSES.family(self._results.items())
        if self._last is not None:
            yield LAST_PASS.value(self._last)
        if seconds is not None:
            yield PASS_SECONDS.value(seconds)
        none = dict.fromkeys(((node, step) for node in self._nodes for step in IN_AND_OUT), 0)
        yield STEPS.family(sorted({**none, **self.steps}.items()))
        never = dict.fromkeys(self._nodes, 0)
        yield SILENCES.family(sorted({**never, **self._silences}.items()))
