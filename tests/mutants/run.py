"""Run the rows of one tier: first all their tests without a fault, then the tests with each fault.

A row is one fault in tests/mutants/table/ and the tests that must fail with this fault. The tier is
what the tests need: nothing, containers or a cluster.
"""

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, TypeAlias

from local.paths import ROOT
from tests.mutants.apply import Scratch
from tests.mutants.commands import Commands
from tests.mutants.docker_images import remove_images
from tests.mutants.fault import Fault, Tier
from tests.mutants.judge import Run, Verdict, problem_without, read, verdict

AT_ONCE: Final[Mapping[Tier, int]] = {"unit": 2, "container": 1, "cluster": 1}
SECONDS: Final[Mapping[Tier, int]] = {"unit": 300, "container": 1800, "cluster": 3600}
"""Time limits of a pytest run, in seconds for each test of the run."""
DOWN_SECONDS: Final = 600
_OPTIONS: Final[Mapping[Tier, Sequence[str]]] = {
    # Let a hanging unit test fail before the time limit of the run.
    "unit": ("--timeout=240",),
    "container": (),
    "cluster": ("--keep",),
}

Say: TypeAlias = Callable[[str], None]
Problem: TypeAlias = tuple[str, str]
"""Why a test does not pass without the fault, and the output that shows the reason."""


class ClusterLeftError(Exception):
    """The rows' cluster was not removed. The message contains the command that removes it."""


@dataclass(frozen=True)
class Result:
    """The result of one row."""

    fault: Fault
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0
    output: str = ""
    """Explanation of an error."""


class Runner:
    """Runs the rows of one tier in copies of the checkout below `folder`."""

    def __init__(self, tier: Tier, folder: Path, say: Say) -> None:
        self._tier = tier
        self._say = say
        self._commands = Commands()
        self._logs = Path(mkdtemp(prefix="logs-", dir=folder))
        self._copies = tuple(
            Scratch.made(folder / f"{tier}-{number}") for number in range(AT_ONCE[tier])
        )
        self._free: queue.SimpleQueue[Scratch] = queue.SimpleQueue()
        for copy in self._copies:
            if tier != "unit":
                copy.share_builds()
            self._free.put(copy)

    def results(self, faults: Collection[Fault], report: Callable[[Result], None]) -> list[Result]:
        """Return the results of all rows, and report each result at once.

        Raises KeyboardInterrupt after all running commands have ended.
        """
        results: list[Result] = []
        with ThreadPoolExecutor(len(self._copies)) as pool:
            try:
                problems = {} if self._tier == "cluster" else self._without(faults, pool)
                rows = [pool.submit(self._row, fault, problems) for fault in faults]
                for row in as_completed(rows):
                    results.append(row.result())
                    report(results[-1])
            except KeyboardInterrupt:
                self._commands.interrupt()
                pool.shutdown(cancel_futures=True)
                raise
        return results

    def down(self) -> None:
        """Remove the rows' cluster, if there is one. Raises ClusterLeftError."""
        if self._tier != "cluster":
            return
        (copy,) = self._copies
        for file in copy.root.glob("Pulumi.test-*.yaml"):
            stack = file.name.split(".")[1]
            self._say(f"cluster: removing stack {stack}")
            command = ["make", "down", f"STACK={stack}", "ENGINE=embedded"]
            # Use a new `Commands`: after an interruption, `self._commands` starts no more commands.
            ended = Commands().run(command, copy.root, self._log(), DOWN_SECONDS)
            if ended.code != 0:
                raise ClusterLeftError(
                    f"stack {stack} was not removed: run `{' '.join(command)}` in {copy.root}\n"
                    f"{ended.tail}"
                )
            file.unlink()

    # -- without a fault ---------------------------------------------------------------------------

    def _without(self, faults: Collection[Fault], pool: ThreadPoolExecutor) -> dict[str, Problem]:
        """Run all tests without a fault. Return the problem of each test that does not pass."""
        tests = sorted({test for fault in faults for test in fault.tests})
        self._say(f"{self._tier}: running {len(tests)} tests without a fault")
        size = -(-len(tests) // len(self._copies))
        parts = [tests[start : start + size] for start in range(0, len(tests), size)]
        problems = {}
        for part, run in zip(parts, pool.map(self._passed, parts), strict=True):
            for test in part:
                if why := problem_without(run, test):
                    problems[test] = (why, run.explanation)
        return problems

    def _passed(self, tests: Sequence[str]) -> Run:
        copy = self._free.get()
        try:
            return self._pytest(copy, tests)
        finally:
            self._free.put(copy)

    def _prepared(self, copy: Scratch, fault: Fault) -> Problem | None:
        """Run a row's tests on the cluster without the fault.

        These tests also repair the cluster after the previous row. If the cluster stays unusable,
        the tests run on a new cluster.
        """
        problem = self._problem(copy, fault)
        if problem:
            self._say(f"cluster: repeating the test on a new cluster: {problem[0]}")
            self.down()
            problem = self._problem(copy, fault)
        return problem

    def _problem(self, copy: Scratch, fault: Fault) -> Problem | None:
        run = self._pytest(copy, fault.tests)
        problems = (problem_without(run, test) for test in fault.tests)
        return next(((why, run.explanation) for why in problems if why), None)

    # -- with a fault ------------------------------------------------------------------------------

    def _row(self, fault: Fault, problems: Mapping[str, Problem]) -> Result:
        copy = self._free.get()
        begun = time.monotonic()
        try:
            problem = next((problems[test] for test in fault.tests if test in problems), None)
            if self._tier == "cluster":
                problem = self._prepared(copy, fault)
            result = _unusable(fault, *problem) if problem else self._with(copy, fault)
            return replace(result, seconds=time.monotonic() - begun)
        finally:
            self._free.put(copy)

    def _with(self, copy: Scratch, fault: Fault) -> Result:
        sound = copy.images()
        with copy.with_fault(fault):
            faulty = copy.images() - sound
            result = self._judged(copy, fault)
        if self._tier != "unit":
            remove_images(faulty)
        return result

    def _judged(self, copy: Scratch, fault: Fault) -> Result:
        for test in fault.tests:
            run = self._pytest(copy, [test], "-x")
            judged, why = verdict(fault, test, run)
            if judged is not Verdict.CAUGHT:
                output = run.explanation if judged is Verdict.ERROR else ""
                return Result(fault, judged, why, output=output)
        return Result(fault, Verdict.CAUGHT)

    def _pytest(self, copy: Scratch, tests: Sequence[str], *options: str) -> Run:
        log = self._log()
        report = log.with_suffix(".xml")
        command = [
            *(str(ROOT / ".venv/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={report}", *options, *_OPTIONS[self._tier], *tests),
        ]
        limit = len(tests) * SECONDS[self._tier]
        return read(self._commands.run(command, copy.root, log, limit), report)

    def _log(self) -> Path:
        return self._logs / f"{time.monotonic_ns()}-{threading.get_ident()}.txt"


def _unusable(fault: Fault, why: str, output: str) -> Result:
    """Return the result of a row whose test does not pass without the fault."""
    remedy = f"fix the test, or name another test in tests/mutants/table/{fault.area}.py"
    return Result(fault, Verdict.ERROR, f"{why}; {remedy}", output=output)
