"""`python3 -m agents.accounts [--wanted FILE] [--dry-run] [--json]`: reconcile the accounts.

Print the plan, one line for each step (`+` add, `~` change, `-` remove), and carry it out.
You can interrupt the program and run it again at any moment. Its exit codes are:

    0  accounts match the settings
    1  Slurm does not answer, or refused a step; run the program again
    2  the arguments or the file are invalid
    3  refused: a job uses something that the plan removes; nothing has changed, unless the job
       started after the first step
    4  with --dry-run: the plan contains changes
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from agents.accounts import sacctmgr, slurmctld
from agents.accounts.fields import ValueUnknownError
from agents.accounts.plan import Plan, plan
from agents.accounts.sacctmgr import CommandError, Run
from agents.accounts.things import Action, Observed, Wanted
from agents.say import fail

DONE, FAILED, UNUSABLE, REFUSED, PENDING = range(5)
PATIENCE = 240
"""Seconds to wait until slurmctld has registered the cluster in slurmdbd, at its first start."""
ROUNDS = 3
"""Maximum number of plans in one run. After each plan, the program reads Slurm again, and makes a
new plan if anything still differs from the settings."""
_COLOURS = {"+": "32", "~": "33", "-": "31"}


def main(
    arguments: Sequence[str] | None = None,
    run: Run = sacctmgr.run,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    options = _parser().parse_args(arguments)
    try:
        wanted = Wanted.model_validate_json(options.wanted.read_bytes())
    except (OSError, ValidationError) as error:
        fail(
            f"{options.wanted}: cannot read the wanted accounts: {error}; deploy again to "
            "write this file anew, or set --wanted to the right file"
        )
        return UNUSABLE
    try:
        _await(wanted.cluster, run, sleep)
        observed = sacctmgr.observe(run, wanted.cluster)
        made = plan(observed, wanted)
        _show(made, as_json=options.json)
        if made.refusals:
            return REFUSED
        if options.dry_run:
            return PENDING if made.actions else DONE
        return _follow(made, observed, wanted, run, sleep)
    except (CommandError, ValueUnknownError) as error:
        # A value that sacctmgr shows stays the same in the next run.
        remedy = (
            "; correct the cause, then run the command again"
            if isinstance(error, CommandError)
            else ""
        )
        fail(f"cannot make Slurm's accounts match the settings: {error}{remedy}")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agents.accounts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--wanted",
        type=Path,
        default=Path(os.environ.get("WANTED", "wanted.json")),
        metavar="FILE",
        help="JSON file with the wanted accounts (default: $WANTED)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show which accounts, users and QOS would change, and change nothing",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as one line of JSON")
    return parser


def _await(cluster: str, run: Run, sleep: Callable[[float], None]) -> None:
    problem = ""
    for _ in range(PATIENCE):
        try:
            if cluster in sacctmgr.clusters(run):
                return
            problem = (
                f"slurmdbd does not know the cluster '{cluster}', which slurmctld registers at "
                "its first start; check that slurmctld runs"
            )
        except CommandError as error:
            problem = str(error)
        sleep(1)
    raise CommandError(problem)


def _follow(
    made: Plan, observed: Observed, wanted: Wanted, run: Run, sleep: Callable[[float], None]
) -> int:
    """Carry out the plan, and verify the result in slurmdbd and slurmctld."""
    is_changed = bool(made.actions)
    if is_changed:
        slurmctld.ensure_it_hears(wanted.cluster, run, sleep)
    for _ in range(ROUNDS):
        if not made.actions:
            slurmctld.await_users(observed.things, run, sleep)
            if is_changed:
                slurmctld.look_again(run)
            print("all accounts, users and QOS match the settings")
            return DONE
        for action in made.actions:
            sacctmgr.do(action, wanted.cluster, run, sleep)
        observed = sacctmgr.observe(run, wanted.cluster)
        made = plan(observed, wanted)
        if made.refusals:
            # The first plan had no refusals, so a user has submitted a job since then.
            for refusal in made.refusals:
                fail(refusal)
            return REFUSED
    left = "; ".join(map(str, made.actions))
    raise CommandError(f"Slurm accepted these changes of accounts, but does not show them: {left}")


# --- Output --------------------------------------------------------------------------------------


def _show(made: Plan, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_plain(made)))
    else:
        for action in made.actions:
            print(_coloured(action))
        for note in made.notes:
            print(f"  {note}")
    for refusal in made.refusals:
        fail(f"refused: {refusal}")


def _coloured(action: Action) -> str:
    if not sys.stdout.isatty():
        return str(action)
    return f"\033[{_COLOURS[action.sign]}m{action}\033[0m"


def _plain(made: Plan) -> dict[str, object]:
    actions = [
        {
            "action": {"+": "add", "~": "change", "-": "remove"}[action.sign],
            **{key: value for key, value in action.thing._asdict().items() if value},
            "before": dict(action.before),
            "after": dict(action.changes),
            "jobs": [job.id for job in action.cancels],
        }
        for action in made.actions
    ]
    return {"actions": actions, "refusals": list(made.refusals), "notes": list(made.notes)}


if __name__ == "__main__":
    sys.exit(main())
