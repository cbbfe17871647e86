"""Metrics of the reconciler: findings (problems of nodes) of the last pass, and counters of all
passes.

A node has its own series only for findings and counters. Counters start at 0, because Prometheus
ignores the first value of a counter. docs/metrics.md contains the same list; a test compares both.
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
"""Every wanted node has a counter for each of these steps, even before the first such step."""
NONE, PERSON = "none", "person"
"""Further values of the label `step`: no repair step was taken yet, or a person is needed."""

PASSES = Metric(
    "slurmstack_reconciler_passes_total",
    "Number of passes (checks of all nodes). The label `result` is `failed` if Slurm, "
    "Kubernetes or the settings were unavailable.",
    *("passes", ("result",), "counter"),
)
LAST_PASS = Metric(
    "slurmstack_reconciler_last_pass_timestamp_seconds",
    "Time at which the last successful pass (check of all nodes) ended.",
    "Unix time",
)
PASS_SECONDS = Metric(
    "slurmstack_reconciler_pass_duration_seconds",
    "Duration of the last pass (check of all nodes), successful or failed.",
    "seconds",
)
STEPS = Metric(
    "slurmstack_steps_total",
    "Number of steps that the reconciler took for a node. `lift` ends a drain. `renew` "
    "replaces a pod with old settings. The other steps are `drain`, `restart`, `reboot` and "
    "`replace`.",
    *("steps", ("node", "step"), "counter"),
)
SILENCES = Metric(
    "slurmstack_node_silences_total",
    "Number of times that a node's state in Slurm changed to down or not responding.",
    *("times", ("node",), "counter"),
)
WANTED = Metric("slurmstack_nodes_wanted", "Number of nodes that the settings define.", "nodes")
IN_SERVICE = Metric(
    "slurmstack_nodes_in_service",
    "Number of nodes in service, of the nodes that the settings define.",
    "nodes",
)
WITHOUT_MUNGED = Metric(
    "slurmstack_nodes_without_munged",
    "Number of nodes in the settings whose munged does not run, or was restarted in the last "
    "five minutes.",
    "nodes",
)
UNCHECKED = Metric(
    "slurmstack_nodes_unchecked",
    "Number of nodes in service whose checks have not reported in the last three intervals. "
    "This metric exists only if the settings run the checks regularly on every node.",
    "nodes",
)
OUTDATED = Metric(
    "slurmstack_nodes_outdated",
    "Number of a nodeset's nodes whose pods still have old settings. This metric is absent "
    "if the nodeset has no such nodes.",
    *("nodes", ("nodeset",)),
)
FINDINGS = Metric(
    "slurmstack_findings",
    "Number of nodes with a problem. The label `finding` is the cause of the problem.",
    "nodes",
    ("finding",),
)
NODE_FINDING = Metric(
    "slurmstack_node_finding",
    "Always 1, in one series for each problem of a node. The label `finding` is the cause of the "
    "problem. The label `step` is the last repair step, `none` before the first repair step, or "
    "`person` if a person must solve the problem.",
    *("", ("node", "finding", "step")),
)
METRICS = (
    *(PASSES, LAST_PASS, PASS_SECONDS, STEPS, SILENCES),
    *(WANTED, IN_SERVICE, WITHOUT_MUNGED, UNCHECKED, OUTDATED, FINDINGS, NODE_FINDING),
)
"""All metrics. WANTED and the metrics after it describe nodes."""


def of_nodes(plan: Plan, taken: Mapping[Key, Step]) -> Iterator[Family]:
    """Yield the state of nodes in a pass. `taken` contains the last steps that were tried."""
    # A node may have a cause twice, for example two announcements of maintenance.
    found: dict[Key, bool] = {}
    for out in plan.out:
        key = (out.node, out.cause)
        found[key] = found.get(key, False) or out.needs_person
    yield WANTED.value(plan.wanted)
    yield IN_SERVICE.value(plan.in_service)
    yield WITHOUT_MUNGED.value(plan.without_munged)
    if plan.unchecked is not None:
        yield UNCHECKED.value(plan.unchecked)
    yield OUTDATED.family(sorted(plan.outdated.items()))
    yield FINDINGS.family(sorted(Counter(cause for _, cause in found).items()))
    yield NODE_FINDING.family(
        ((*key, PERSON if needs_person else taken.get(key, NONE)), 1)
        for key, needs_person in found.items()
    )


@dataclass(eq=False)
class Passes(Collector):
    """Provides the metrics of the last pass to scrapes. The reconciler computes the metrics once,
    at the end of each pass."""

    steps: Mapping[tuple[str, str], int]
    """Current number of each step, by node and step."""
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
        """Start a pass over the wanted nodes. Their counters are 0 until the first pass ends."""
        self._nodes = tuple(nodes)
        if not any(self._results.values()):
            self._shown = tuple(self._own())

    def done(self, seconds: float, plan: Plan, taken: Mapping[Key, Step]) -> None:
        """Record a finished pass, with its duration in seconds."""
        self._results["done"] += 1
        self._last = self.clock()
        if self._away is not None:
            self._silences.update(plan.away - self._away)
        self._away = plan.away
        self._shown = (*self._own(seconds), *of_nodes(plan, taken))

    def failed(self, seconds: float) -> None:
        """Record a failed pass, with its duration in seconds. The state of nodes is unknown."""
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
