"""`make mutants`: applies small faults to copies of the code and checks that a test catches each.

Each row of the table names one fault and the tests that must fail. Each of these tests first runs
without the fault. The checkout stays unchanged: all work happens in scratch copies of its tracked
files. All rows that need a cluster share one cluster, which is removed at the end.

Exit codes:
0: a test catches each fault; 1: no test catches some fault, or an error occurred;
2: a row does not match the code, or an option is invalid; 130: interrupted.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from local.paths import ROOT
from tests.mutants.commands import InterruptedRunError
from tests.mutants.fault import AREAS, TIERS, Fault, StaleError
from tests.mutants.judge import Verdict
from tests.mutants.run import ClusterLeftError, Result, Runner
from tests.mutants.show import as_json, line, say, show
from tests.mutants.table import FAULTS


def chosen(only: Sequence[str], tier: str | None) -> list[Fault]:
    """Return the rows whose area or name matches `only`; with `tier`, only rows of this tier."""
    return [
        fault
        for fault in FAULTS
        if (not tier or fault.tier == tier)
        and (not only or any(word == fault.area or word in fault.name for word in only))
    ]


def stale(faults: Sequence[Fault]) -> list[str]:
    """Return the problems of rows that do not fit the code."""
    problems = []
    for fault in faults:
        try:
            fault.applied((ROOT / fault.file).read_text(encoding="utf-8"))
        except (OSError, StaleError) as error:
            problems.append(str(error))
    return problems


def run(faults: Sequence[Fault], folder: Path) -> list[Result]:
    """Run all rows, tier by tier. Raises KeyboardInterrupt and ClusterLeftError."""
    results: list[Result] = []
    for tier in TIERS:
        rows = [fault for fault in faults if fault.tier == tier]
        if not rows:
            continue
        runner = Runner(tier, folder, say)
        try:
            results += runner.results(rows, lambda result: say(line(result)))
        finally:
            # A second interruption must not leave the cluster behind.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            runner.down()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="AREA|NAME",
        help=f"only rows of these areas ({', '.join(AREAS)}), or with these words in their names",
    )
    parser.add_argument(
        "--tier", choices=TIERS, help="only rows with tests of this tier (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    faults = chosen(options.only, options.tier)
    if not faults:
        parser.error(f"--only {' '.join(options.only)}: matches no row of tests/mutants/table/")
    if problems := stale(faults):
        say("\n".join(f"error: {problem}" for problem in problems))
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="slurmstack-mutants-")).resolve()
    keep = False
    try:
        results = run(faults, folder)
    except (KeyboardInterrupt, InterruptedRunError):
        say("interrupted")
        return 130
    except ClusterLeftError as error:
        say(f"error: {error}")
        keep = True  # Keep the folder: the message names a command that must run in it.
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(as_json(results)) if options.json else show(results)
    return 0 if all(result.verdict is Verdict.CAUGHT for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
