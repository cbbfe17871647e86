"""Metrics of the bridge: the pods at the last plan, and counters of all plans.

Only the pod that acts makes plans, so another pod reports only that it does not act.
docs/metrics.md contains the same list; a test compares both.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.bridge.actions import Action, Bind
from agents.bridge.carry import Carried
from agents.bridge.observed import Observed, Pod
from agents.metrics import Metric

STATES = ("ending", "refused", "running", "waiting")
ACTS = Metric(
    "slurmstack_bridge_acts",
    "1 if this pod of the bridge acts, 0 if it waits to take the place of another.",
    "",
)
PLANS = Metric(
    "slurmstack_bridge_plans_total",
    "Number of plans. The label `result` is `failed` if Slurm, Kubernetes or the settings were "
    "unavailable.",
    *("plans", ("result",), "counter"),
)
LAST_PLAN = Metric(
    "slurmstack_bridge_last_plan_timestamp_seconds",
    "Time at which the last successful plan was carried out.",
    "Unix time",
)
PLAN_SECONDS = Metric(
    "slurmstack_bridge_plan_duration_seconds",
    "Time that the last plan took, with its actions.",
    "seconds",
)
ACTIONS = Metric(
    "slurmstack_bridge_actions_total",
    "Number of actions. The label `result` is `failed` if Slurm or Kubernetes refused the action.",
    *("actions", ("action", "result"), "counter"),
)
PODS = Metric(
    "slurmstack_bridge_pods",
    "Number of pods that Slurm schedules. The label `state` is `waiting` without a machine, "
    "`running` on a machine, `ending` for a deleted pod whose containers still run, or `refused` "
    "if the pod cannot have a job as it is. Pods that have stopped are not included.",
    *("pods", ("namespace", "state")),
)
BIND_DELAY = Metric(
    "slurmstack_bridge_bind_delay_seconds_total",
    "Sum of the times from the start of a job to the binding of its pods.",
    *("seconds", (), "counter"),
)
START_DELAY = Metric(
    "slurmstack_bridge_start_delay_seconds",
    "Longest time for which a running job has waited for pods without a machine, or 0.",
    "seconds",
)
STOP_DELAY = Metric(
    "slurmstack_bridge_stop_delay_seconds",
    "Longest time for which a pod has run after the end of its grace period, or 0. Until it stops, "
    "Slurm keeps its CPUs and memory.",
    "seconds",
)
METRICS = (
    *(ACTS, PLANS, LAST_PLAN, PLAN_SECONDS, ACTIONS),
    *(PODS, BIND_DELAY, START_DELAY, STOP_DELAY),
)


@dataclass(eq=False)
class Plans(Collector):
    """Provides the metrics of the last plan to scrapes."""

    acts: Callable[[], bool]
    clock: Callable[[], float] = time.time
    """Unix time."""

    def __post_init__(self) -> None:
        self._results = {"done": 0, "failed": 0}
        self._actions = Counter(
            {(_name(kind), result): 0 for kind in get_args(Action) for result in self._results}
        )
        self._bind_delay = 0.0
        self._last: float | None = None
        self._shown: tuple[Family, ...] = ()

    def done(
        self, seconds: float, observed: Observed, carried: Carried, refused: Collection[str]
    ) -> None:
        """Record a plan that was carried out, with its duration in seconds.

        `refused` contains the gangs whose jobs Slurm has refused.
        """
        self._results["done"] += 1
        self._last = self.clock()
        self._actions.update((_name(type(action)), "done") for action in carried.done)
        self._actions.update((_name(type(action)), "failed") for action, _ in carried.failed)
        for action in carried.done:
            if isinstance(action, Bind) and action.job in observed.jobs:
                self._bind_delay += max(0.0, self._last - observed.jobs[action.job].started)
        self._shown = (
            PLAN_SECONDS.value(seconds),
            *_of_pods(observed, refused),
            *_delays(observed, self._last),
        )

    def failed(self) -> None:
        """Record a plan that failed. The state of the pods is unknown."""
        self._results["failed"] += 1
        self._shown = ()

    def collect(self) -> Iterable[Family]:
        acts = self.acts()
        yield ACTS.value(int(acts))
        if acts:
            yield PLANS.family(sorted(self._results.items()))
            if self._last is not None:
                yield LAST_PLAN.value(self._last)
            yield ACTIONS.family(sorted(self._actions.items()))
            yield BIND_DELAY.value(self._bind_delay)
            yield from self._shown


def _of_pods(observed: Observed, refused: Collection[str]) -> Iterator[Family]:
    states = Counter(
        (pod.namespace, _state(pod, refused)) for pod in observed.pods if not pod.has_stopped
    )
    yield PODS.family(sorted(states.items()))


def _state(pod: Pod, refused: Collection[str]) -> str:
    if pod.leaves:
        return "ending"
    if pod.machine:
        return "running"
    return "refused" if pod.problem or pod.gang in refused else "waiting"


def _delays(observed: Observed, now: float) -> Iterator[Family]:
    jobs = observed.jobs
    starts = [
        now - jobs[pod.job].started
        for pod in observed.pods
        if pod.job is not None and pod.job in jobs
        if jobs[pod.job].runs and not pod.machine and not pod.leaves
    ]
    stops = [
        now - pod.stops_by
        for pod in observed.pods
        if pod.stops_by is not None and not pod.has_stopped
    ]
    yield START_DELAY.value(max((0.0, *starts)))
    yield STOP_DELAY.value(max((0.0, *stops)))


def _name(kind: type) -> str:
    return kind.__name__.lower()
