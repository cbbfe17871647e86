"""Read Slurm's accounts and carry out plans with Slurm's own commands, as SlurmUser.

A field of the user (default account, admin level) and a field of an association need separate
commands. In tests with sacctmgr 24.11, one `modify user … set` with both kinds of fields changed
the association in every account, and ignored `where`.

An empty `partition=` excludes associations for single partitions from a change.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from agents.accounts.fields import (
    ASSOCIATION,
    PERSON,
    QOS,
    ValueUnknownError,
    read,
    with_defaults,
    write,
)
from agents.accounts.things import ROOT, Action, Job, Observed, State, Thing, read_mark

TIMEOUT = 120
"""Time limit of a command in seconds."""
GOING = 120
"""Seconds to wait until cancelled jobs have ended. By default, Slurm waits 30 s of this time before
it kills a cancelled job (KillWait)."""

Run = Callable[[Sequence[str]], str]
"""Function that runs a command and returns its output. Raises `CommandError`."""


class CommandError(Exception):
    """A command of Slurm failed. The message is one line, with Slurm's own message."""


def run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise CommandError(
            f"{' '.join(command)}: no answer within {TIMEOUT} s; check that slurmdbd and "
            "slurmctld run"
        ) from None
    except OSError as error:
        raise CommandError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        said = " ".join(f"{done.stderr} {done.stdout}".split())
        raise CommandError(f"{' '.join(command)}: {said or f'exit code {done.returncode}'}")
    return done.stdout


# --- Reading -------------------------------------------------------------------------------------

_OF_ASSOCIATIONS = ("cluster", "account", "user", "partition", "parentname", *sorted(ASSOCIATION))
_OF_QOS = ("name", *sorted(QOS))


def observe(run: Run, cluster: str) -> Observed:
    """Return the state of Slurm. Raises `CommandError` and `ValueUnknownError`."""
    # Read jobs last, to include jobs that users submit during the other reads.
    things = _associations(run, cluster) | _qos(run)
    return Observed(things, tuple(_jobs(run)))


def clusters(run: Run) -> list[str]:
    """Return the clusters that slurmdbd knows."""
    return [row[0] for row in _show(run, "cluster", ("cluster",))]


def _associations(run: Run, cluster: str) -> dict[Thing, State]:
    texts = {row[0]: row[1:] for row in _show(run, "account", ("account", "org", "descr"))}
    people = {row[0]: row[1:] for row in _show(run, "user", ("user", "defaultaccount", "admin"))}
    things: dict[Thing, State] = {}
    columns = (*_OF_ASSOCIATIONS, "comment")
    # The option wopl leaves out limits that an association inherits from its parents.
    where = ("wopl", "where", f"cluster={cluster}")
    for row in _show(run, "association", columns, *where):
        values = dict(zip(columns, row, strict=True))
        account, user, partition = values["account"], values["user"], values["partition"]
        thing = Thing("user", user, account, partition) if user else Thing("account", account)
        if thing == Thing("account", ROOT):
            continue
        shown = {field: values[field] for field in ASSOCIATION}
        if thing.kind == "account":
            shown["parent"] = values["parentname"]
            shown |= dict(zip(("organization", "description"), texts[account], strict=True))
        elif not partition:
            shown |= dict(zip(("defaultaccount", "adminlevel"), people[user], strict=True))
        things[thing] = _state(thing, shown, values["comment"])
    return things


def _qos(run: Run) -> dict[Thing, State]:
    columns = (*_OF_QOS, "description")
    found = {}
    for name, *rest in _show(run, "qos", columns):
        *values, description = rest
        thing = Thing("qos", name)
        found[thing] = _state(thing, dict(zip(_OF_QOS[1:], values, strict=True)), description)
    return found


def _state(thing: Thing, shown: Mapping[str, str], comment: str) -> State:
    try:
        fields = [pair for field, text in shown.items() for pair in read(field, text).items()]
    except ValueUnknownError as error:
        raise ValueUnknownError(f"{thing}: {error}") from error
    return State(with_defaults(thing.kind, fields), *read_mark(comment))


def _show(run: Run, entity: str, columns: Sequence[str], *words: str) -> Iterator[list[str]]:
    """Yield the rows of a list. Only the last column may contain `|`, because people write its
    text."""
    command = ("sacctmgr", "--noheader", "--parsable2", "show", entity, *words)
    for line in run((*command, f"format={','.join(columns)}")).splitlines():
        row = line.split("|", len(columns) - 1)
        if len(row) != len(columns):
            raise CommandError(
                f"sacctmgr show {entity}: the line '{line}' has {len(row)} columns, expected "
                f"{len(columns)}; check that this Slurm version is supported"
            )
        yield row


def _jobs(run: Run) -> Iterator[Job]:
    output = run(("squeue", "--noheader", "--all", "--format=%A|%u|%a|%q|%P"))
    for line in sorted(set(output.splitlines())):
        yield Job(*line.strip().split("|", 4))


# --- Changes -------------------------------------------------------------------------------------


def do(action: Action, cluster: str, run: Run, sleep: Callable[[float], None] = time.sleep) -> None:
    """Carry out one step of a plan. Raises `CommandError`."""
    if action.cancels:
        _cancel(action, run, sleep)
    try:
        for command in commands(action, cluster):
            run(command)
    finally:
        if action.interim:
            # Restore the user's default account, even if Slurm refused a step.
            restored = f"defaultaccount={action.thing.account}"
            run(_sacctmgr(*_person(action, cluster), restored))


def commands(action: Action, cluster: str) -> list[tuple[str, ...]]:
    """Return the commands of a step. Run them again to complete an interrupted step."""
    thing = action.thing
    own = {field: value for field, value in action.changes.items() if field in PERSON}
    others = {field: value for field, value in action.changes.items() if field not in PERSON}
    person = _person(action, cluster)
    if action.sign == "-":
        if action.new_default:
            own["defaultaccount"] = action.new_default
        if action.interim:
            own["defaultaccount"] = action.interim
        before = [(*person, *write("user", own))] if own else []
        return [_sacctmgr(*words) for words in (*before, _delete(thing, cluster))]
    set_comment = "description" if thing.kind == "qos" else "comment"
    mark = [] if action.comment is None else [f"{set_comment}={action.comment}"]
    fields = [*write(thing.kind, others), *mark]
    found = [_verb(action, cluster, fields)] if fields else []
    if own:
        # Set the mark before the user's fields: after an interruption, a field without a mark would
        # look like a field that people set.
        found.append((*person, *write("user", own)))
    return [_sacctmgr(*words) for words in found]


def _person(action: Action, cluster: str) -> tuple[str, ...]:
    """Return the beginning of a command that sets fields of the user in all accounts."""
    return ("modify", "user", action.thing.name, "where", f"cluster={cluster}", "set")


def _verb(action: Action, cluster: str, fields: Sequence[str]) -> tuple[str, ...]:
    thing = action.thing
    # All clusters share one set of QOS.
    where = [] if thing.kind == "qos" else [f"cluster={cluster}"]
    where += [f"account={thing.account}"] if thing.account else []
    if action.sign == "+":
        where += [f"partition={thing.partition}"] if thing.partition else []
        return ("add", thing.kind, thing.name, *where, *fields)
    where += [f"partition={thing.partition}"] if thing.account else []
    condition = ["where", *where] if where else []
    return ("modify", thing.kind, thing.name, *condition, "set", *fields)


def _delete(thing: Thing, cluster: str) -> tuple[str, ...]:
    if thing.kind != "user":
        return ("delete", thing.kind, thing.name)
    where = [f"cluster={cluster}", f"account={thing.account}"]
    # Without a partition, this removes the user from the account with all associations.
    where += [f"partition={thing.partition}"] if thing.partition else []
    return ("delete", "user", thing.name, "where", *where)


def _sacctmgr(*words: str) -> tuple[str, ...]:
    return ("sacctmgr", "--immediate", *words)


def _cancel(action: Action, run: Run, sleep: Callable[[float], None]) -> None:
    ids = {job.id for job in action.cancels}
    run(("scancel", *sorted(ids)))
    for _ in range(GOING):
        if not ids & {job.id for job in _jobs(run)}:
            return
        sleep(1)
    raise CommandError(
        f"{action.thing}: its cancelled jobs have not ended after {GOING} s; wait until these "
        "jobs end"
    )
