"""Run the checks of a node. The first argument is the occasion.

Slurm starts this program at intervals (`interval`), before each job (`prolog`) and after each job
(`epilog`). Operators start it as `check-node`.

For Slurm, the exit code is 0 except in these cases:

- A prolog exits with 1 if a check with the effect `drain` failed. Slurm requeues the job.
- An epilog exits with 1 if a check with the effect `drain` failed, but the epilog could not drain
  the node. Slurm then drains the node itself.

`check-node` changes nothing. Its exit code is:

    0  all checks passed
    1  a check failed
    2  `check-node` cannot start
    3  no check failed, but a check could not decide
"""

import fcntl
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agents.checks import slurm
from agents.checks.passes import Outcome, Verdict, carry_out
from agents.checks.readers import SETTINGS, STATE, node_name
from agents.checks.registry import When
from agents.checks.settings import Chosen, SettingsError, read
from agents.say import Level, logfmt

PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of the checks, because slurmd sets no PATH for its programs."""
SCRIPT = Path("/usr/lib/slurmstack/scripts/health_check")
"""The site's own script. It runs at each interval, after the checks."""
LOG = Path("/proc/1/fd/1")
"""The pod's log, because slurmd discards the output of a successful program."""


def main(occasion: str, arguments: Sequence[str] = ()) -> int:
    os.environ["PATH"] = PATHS
    os.environ.setdefault("SLURM_CONF", slurm.CONF)
    if occasion not in set(When):
        from agents.checks.demand import show  # import argparse only for check-node

        return show(occasion, arguments)
    try:
        chosen = [one for one in read(SETTINGS) if occasion in one.check.when]
        code = interval(chosen) if occasion == When.INTERVAL else around_job(occasion, chosen)
    except SettingsError as error:
        _say("error", f"cannot run the checks of this node: {error}")
        code = 0
    if occasion == When.INTERVAL and os.access(SCRIPT, os.X_OK):
        os.execv(SCRIPT, [str(SCRIPT)])  # noqa: S606  # the site's own script
    return code


def interval(chosen: Sequence[Chosen], state: Path = STATE) -> int:
    """Run all checks of the interval, and record their results in Slurm."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(state / "pass", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(
            "warn",
            "did not run the checks, because their previous run has not ended; no action needed: "
            "the checks run again at the next interval",
        )
        return 0
    at, outcomes = int(time.time()), carry_out(chosen, state)
    _report_failures(outcomes)
    try:
        drained = slurm.settle(node_name(), outcomes, at, state)
    except slurm.SilenceError as error:
        _say(
            "error",
            f"cannot write the results of the checks to Slurm: {error}; the next run of the checks "
            "tries again",
        )
    else:
        if drained:
            _say("warn", f"drained this node: {drained}")
    return 0


def around_job(occasion: str, chosen: Sequence[Chosen], state: Path = STATE) -> int:
    """Run the checks of a prolog or epilog. They can drain the node, but never lift a drain."""
    if not chosen:
        return 0
    outcomes = carry_out(chosen, state)
    if not any(one.drains for one in outcomes):
        return 0
    _report_failures(outcomes)
    try:
        slurm.drain(node_name(), outcomes, state)
    except slurm.SilenceError as error:
        # The exit code 1 makes Slurm drain the node. The drain then has a reason from Slurm, which
        # does not name the failed check.
        _say(
            "error",
            f"the checks cannot drain this node: {error}; no action needed: Slurm itself drains "
            "the node",
        )
        return 1
    return int(occasion == When.PROLOG)


def _report_failures(outcomes: Sequence[Outcome]) -> None:
    for one in outcomes:
        if one.verdict is Verdict.FAILED:
            _say("warn", f"{one.name}: {one.what}")


def _say(level: Level, text: str) -> None:
    line = logfmt(level, f"checks: {text}")
    try:
        LOG.open("a").write(f"{line}\n")
    except OSError:
        print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
