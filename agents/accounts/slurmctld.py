"""Verify what slurmctld knows of accounts: it receives each change once, and can miss it.

Seen with 24.11:

- After a restart, slurmdbd reaches slurmctld only once slurmctld has had something to send. Changes
  before that are lost.
- If the files with a new user have not reached slurmctld's machine yet, the user stays unknown to
  slurmctld for an hour.

`scontrol reconfigure` repairs both: slurmctld reads everything again, and jobs do not notice. It
also saves what it has received, which it otherwise does every five minutes. A slurmctld that is
lost before that would have to wait for slurmdbd, which may be lost too.
"""

import pwd
import re
import time
from collections.abc import Callable, Mapping

from agents.accounts.sacctmgr import CommandError, Run
from agents.accounts.things import ROOT, Thing

HEARS_WITHIN = 3
"""Maximum time until a change reaches slurmctld, in seconds."""
KNOWS_WITHIN = 180
"""Seconds until slurmctld must know all users. The kubelet delivers new ones within about 90."""
AGAIN_AFTER = 10
"""Seconds between two reconfigurations."""
_RECORD = re.compile(r"ClusterName=\S+ Account=(\S+) UserName=[^\s(]+\((\d+)\)(?:\s|$)")

UidOf = Callable[[str], int | None]


def uid_of(name: str) -> int | None:
    """Return a user's uid on this machine, which has the newest users; or None."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def ensure_it_hears(cluster: str, run: Run, sleep: Callable[[float], None]) -> None:
    """Write a word to the database. If slurmctld does not receive it, make it read everything."""
    word = f"slurmstack: heard {time.time_ns()}"
    where = ("where", f"cluster={cluster}")
    run(("sacctmgr", "--immediate", "modify", "account", ROOT, *where, "set", f"comment={word}"))
    for _ in range(HEARS_WITHIN):
        if word in _associations(run, f"accounts={ROOT}"):
            return
        sleep(1)
    look_again(run)


def await_users(
    things: Mapping[Thing, object],
    run: Run,
    sleep: Callable[[float], None],
    uid_of: UidOf = uid_of,
) -> None:
    """Wait until slurmctld knows the users of each account. Raises `CommandError` if it does not.

    `things` are those of the database. Users whose names are unknown by now do not count.
    """
    wanted = {
        (thing.account, uid)
        for thing in things
        if thing.kind == "user" and (uid := uid_of(thing.name)) is not None
    }
    for second in range(KNOWS_WITHIN):
        missing = wanted - known(_associations(run))
        if not missing:
            return
        if second % AGAIN_AFTER == HEARS_WITHIN:
            look_again(run)
        sleep(1)
    account, uid = min(missing)
    raise CommandError(f"slurmctld does not know the user id {uid} in account {account}")


def known(told: str) -> set[tuple[str, int]]:
    """Return account and uid of each association that slurmctld reports."""
    return {(account, int(uid)) for account, uid in _RECORD.findall(told)}


def _associations(run: Run, *which: str) -> str:
    return run(("scontrol", "show", "assoc_mgr", *which, "flags=assoc"))


def look_again(run: Run) -> None:
    """Make slurmctld read everything again, and save what it has received."""
    run(("scontrol", "reconfigure"))
