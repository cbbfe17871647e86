"""`python3 -m agents.reconciler [--once] [--after-deploy] [--dry-run] [--json]`: check all nodes.

The reconciler compares the settings with the states in Kubernetes and Slurm, and repairs
differences; see docs/reconciler.md. One comparison with its repairs is a *pass*. Without options,
the reconciler makes passes until SIGTERM. The exit code of one pass is:

    0  all nodes are in service
    1  a node is out of service; the reconciler repairs it, or a person has taken it out
    2  Slurm, Kubernetes or the settings cannot be read; some or all actions were not carried out
    3  a node has a problem that a person must solve

With --after-deploy, the reconciler first waits for the roll-out, and writes its report to its own
Job. The exit code is 0 instead of 1 or 3, because a node out of service must not fail a deploy.

Environment variables:

    REST_URL   URL of slurmrestd
    JWT_KEY    file with slurmctld's key
    WANTED     file with the settings
    NAMESPACE  namespace of the stack
    MEMORY     name of the reconciler's ConfigMap
    TOPOLOGY   name of the ConfigMap with topology.conf
    BUDGET     name of the PodDisruptionBudget for nodes with jobs
    OWNER      `apiVersion kind name` of the reconciler's Deployment or Job
    PORT       optional: port for metrics of repeated passes (docs/metrics.md)
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents import metrics
from agents.kubernetes import Api, KubernetesError, in_cluster
from agents.reconciler import report, wanted
from agents.reconciler.actions import Action
from agents.reconciler.carry import Carrier, Place
from agents.reconciler.disruption import Budget
from agents.reconciler.ladder import taken
from agents.reconciler.memory import Key, MemoryUnknownError
from agents.reconciler.metrics import Passes
from agents.reconciler.observed import Observed, Update, gated, observe, templates
from agents.reconciler.plan import Plan, plan
from agents.reconciler.rollout import is_coming
from agents.reconciler.wanted import Step, Wanted
from agents.reconciler.wiring import Wiring
from agents.say import fail, say
from agents.slurm import Client, SlurmError, from_key
from agents.wanted import WantedError

USER = "slurm"
"""SlurmUser may change all nodes."""
PAUSE = 5
"""Seconds between two checks of a roll-out."""
SOON = 5
"""Maximum number of seconds until the next pass while nodes without jobs wait for their update.
Also the number of seconds between two checks for changes of the nodes' pods."""
AGAIN = 15
"""Seconds until the next pass if the settings cannot be read."""
PROBLEMS = (KubernetesError, MemoryUnknownError, SlurmError, WantedError)


@dataclass(frozen=True)
class Pass:
    plan: Plan
    taken: Mapping[Key, Step]
    """Last repair step that was tried, for each node and cause."""
    notes: tuple[str, ...]
    """Actions that were not carried out, with the reasons."""
    topology: str = ""
    """Summary of the topology if this pass has written it."""
    done: tuple[Action, ...] | None = None
    """Actions that were carried out, or None in a dry run."""

    @property
    def code(self) -> int:
        return report.code(self.plan)

    def actions(self) -> list[str]:
        """Return a line for each planned action, which says whether it was carried out."""
        lines = [f"{self._status(action)}: {action}" for action in self.plan.actions]
        return [*lines, *([self.topology] if self.topology else [])]

    def _status(self, action: Action) -> str:
        if self.done is None:
            return "planned"
        return "done" if action in self.done else "not done"


class Reconciler:
    def __init__(
        self,
        slurm: Client,
        api: Api,
        place: Place,
        wanted_file: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.carrier = Carrier(slurm, api, place)
        self._wiring = Wiring(api, place.namespace, place.topology)
        self._budget = Budget(api, place.namespace, place.budget)
        self._slurm = slurm
        self._api = api
        self._namespace = place.namespace
        self._wanted_file = wanted_file
        self._clock = clock
        self._templates: Mapping[str, Update] | None = None
        """Templates of the pods at the last pass."""
        self._keeps_machines = False
        self._gated: set[str] = set()
        """Uids of the pods that waited for the reconciler at the last pass."""

    def wanted(self) -> Wanted:
        return wanted.read(self._wanted_file)

    def observe(self, asked: Wanted) -> Observed:
        return observe(self._slurm, self._api, self._namespace, asked.label_keys())

    def look(self, *, dry_run: bool = False) -> Pass:
        """Make one pass. Raises an error of `PROBLEMS` if the pass is incomplete."""
        asked = self.wanted()
        # Read the memory first: if another reconciler writes the memory during this pass, that
        # reconciler has newer data.
        kept = self.carrier.recall()
        observed = self.observe(asked)
        self._templates, self._keeps_machines = observed.updates, asked.keeps_machines()
        self._gated = {pod.uid for pod in observed.pods.values() if pod.is_gated}
        made = plan(observed, asked, kept.memory, int(self._clock()))
        if dry_run:
            wired, notes = self._wire(asked, observed, dry_run=True)
            return Pass(made, taken(kept.memory, asked), notes, wired)
        carried = self.carrier.carry(made, kept, observed.machines, asked.replace)
        unprotected = self._protect(observed, made)
        wired, notes = self._wire(asked, observed)
        notes = (*carried.notes, *unprotected, *notes)
        done = Pass(made, taken(carried.memory, asked), notes, wired, carried.done)
        if done.actions():
            self.carrier.event("Normal", "Reconciled", "\n".join((*done.actions(), *done.notes)))
        return done

    def has_news(self) -> bool:
        """Return whether a pass is needed before the interval ends.

        This is the case if an edit has changed the template of the nodes' pods since the last pass,
        or if another pod waits until the reconciler lets Kubernetes schedule it.
        """
        if self._templates is None:
            return False
        try:
            if templates(self._api, self._namespace) != self._templates:
                return True
            return self._keeps_machines and bool(gated(self._api, self._namespace) - self._gated)
        except KubernetesError:
            return False  # the next pass reports it

    def _protect(self, observed: Observed, made: Plan) -> tuple[str, ...]:
        """Protect nodes with jobs from evictions. Return a message if this failed."""
        try:
            self._budget.keep(observed, made.refused)
        except KubernetesError as error:
            text = (
                "nodes with jobs are not protected from evictions, because the PodDisruptionBudget "
                f"cannot be updated: {error}; the next pass tries again"
            )
            return (text,)
        return ()

    def _wire(
        self, asked: Wanted, observed: Observed, *, dry_run: bool = False
    ) -> tuple[str, tuple[str, ...]]:
        """Write topology.conf. Return a summary if the file was written, and a message if this
        failed."""
        if asked.topology is None:
            return "", ()
        nodes, now = asked.nodes(), int(self._clock())
        try:
            return self._wiring.keep(asked.topology, nodes, observed, now, dry_run=dry_run), ()
        except KubernetesError as error:
            return "", (f"cannot write topology.conf: {error}; the next pass tries again",)

    def await_rollout(self, sleep: Callable[[float], None]) -> None:
        """Wait until no node is starting, at most for the time limit in the settings."""
        end = self._clock() + self.wanted().rollout
        while self._clock() < end:
            try:
                asked = self.wanted()
                if not is_coming(self.observe(asked), asked, int(self._clock())):
                    return
            except PROBLEMS as error:
                print(
                    f"cannot check yet whether all nodes have started: {error}; trying again",
                    file=sys.stderr,
                )
            sleep(PAUSE)


def main(
    arguments: Sequence[str] | None = None,
    reconciler: Reconciler | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    options = _parser().parse_args(arguments)
    try:
        reconciler = reconciler or _reconciler()
    except KubernetesError as error:
        fail(f"the reconciler checked no node: {error}")
        return report.UNASKED
    if options.after_deploy:
        return _after_deploy(reconciler, sleep)
    if options.once or options.dry_run:
        return _once(reconciler, dry_run=options.dry_run, as_json=options.json)
    return _again_and_again(reconciler, as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agents.reconciler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--once", action="store_true", help="check all nodes once, drain and repair nodes, and exit"
    )
    mode.add_argument(
        "--after-deploy",
        action="store_true",
        help="wait until all nodes have started, then check all nodes once",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all nodes once, show the planned actions, and change nothing",
    )
    parser.add_argument("--json", action="store_true", help="print each plan as one line of JSON")
    return parser


def _reconciler() -> Reconciler:
    version, kind, name = os.environ["OWNER"].split()
    place = Place(
        os.environ["NAMESPACE"],
        os.environ["MEMORY"],
        {"apiVersion": version, "kind": kind, "name": name},
        os.environ["TOPOLOGY"],
        os.environ["BUDGET"],
    )
    slurm = Client(os.environ["REST_URL"], from_key(Path(os.environ["JWT_KEY"]), USER))
    return Reconciler(slurm, in_cluster(), place, Path(os.environ["WANTED"]))


# --- Modes ---------------------------------------------------------------------------------------


def _once(reconciler: Reconciler, *, dry_run: bool, as_json: bool) -> int:
    try:
        done = reconciler.look(dry_run=dry_run)
    except PROBLEMS as error:
        fail(
            f"the check of the nodes did not finish: {error}; correct the cause, then run this "
            "command again"
        )
        return report.UNASKED
    _show(done, as_json=as_json)
    return done.code


def _again_and_again(reconciler: Reconciler, *, as_json: bool) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    passes = Passes(reconciler.carrier.steps, time.time)
    if port := os.environ.get("PORT"):
        _serve(passes, int(port))
    said = ""
    while not stop.is_set():
        begun, interval = time.monotonic(), AGAIN
        try:
            asked = reconciler.wanted()
            interval = asked.interval
            passes.begin(asked.nodes())
            done = reconciler.look()
            if done.actions() or done.notes or report.text(done.plan) != said:
                _say(done, as_json=as_json)
            said = report.text(done.plan)
            interval = min(interval, SOON) if done.plan.goes_on else interval
            passes.done(time.monotonic() - begun, done.plan, done.taken)
        except PROBLEMS as error:
            say(
                "error",
                f"the check of the nodes did not finish: {error}; the next pass tries again",
            )
            passes.failed(time.monotonic() - begun)
        _wait(stop, reconciler, begun + interval)
    return 0


def _wait(stop: threading.Event, reconciler: Reconciler, end: float) -> None:
    """Wait until `end` (on the monotonic clock), SIGTERM, or a change of the nodes' pods."""
    while not stop.wait(max(0.0, min(SOON, end - time.monotonic()))):
        if time.monotonic() >= end or reconciler.has_news():
            return


def _serve(passes: Passes, port: int) -> None:
    try:
        metrics.serve(passes, port)
    except OSError as error:
        say(
            "error",
            f"variable PORT={port}: cannot serve metrics: {error.strerror}; free the port, "
            "then restart the pod; the reconciler works without metrics until then",
        )


def _after_deploy(reconciler: Reconciler, sleep: Callable[[float], None]) -> int:
    try:
        reconciler.await_rollout(sleep)
        done = reconciler.look()
        summary = report.text(done.plan)
        reconciler.carrier.event(
            "Normal" if done.code == report.IN_SERVICE else "Warning", "Deployed", summary
        )
        # Write the report last: the deploy reads it after this Job has ended.
        reconciler.carrier.annotate_job(summary)
    except PROBLEMS as error:
        fail(
            f"the deploy could not check the nodes: {error}; the reconciler tries again by "
            "itself; see its log for the state of the nodes"
        )
        return report.UNASKED
    _show(done, as_json=False)
    return 0


def _show(done: Pass, *, as_json: bool) -> None:
    if as_json:
        print(report.as_json(done.plan, done.notes))
        return
    for line in done.actions():
        print(line)
    for note in done.notes:
        fail(note)
    print(report.text(done.plan))


def _say(done: Pass, *, as_json: bool) -> None:
    """Log the output of `_show` in the format of a daemon."""
    if as_json:
        _show(done, as_json=True)
        return
    for line in done.actions():
        say("info", line)
    for note in done.notes:
        say("error", note)
    for line in report.text(done.plan).splitlines():
        say("info", line)


if __name__ == "__main__":
    sys.exit(main())
