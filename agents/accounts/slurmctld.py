"""What slurmctld knows of accounts. It is told of each change once, and does not always hear it.

Seen with 24.11: slurmdbd that has started again reaches slurmctld only when that has next had
something to tell, and what is changed before is lost. And a user whom slurmctld's machine does not
know yet, since the files of a new one are still on their way, stays unknown to it for an hour.
`scontrol reconfigure` mends both: slurmctld then reads everything anew, and jobs see nothing of it.
It also writes down then what it was told, as it else does every five minutes: one that is lost
before would wait for slurmdbd, which may be lost with it.
"""

import pwd
import re
import time
from collections.abc import Callable, Mapping

from agents.accounts.sacctmgr import CommandError, Run
from agents.accounts.things import ROOT, Thing

HEARS_WITHIN = 3
"""Seconds that a change takes at most to get there."""
KNOWS_WITHIN = 180
"""Seconds until slurmctld must know all users; the kubelet brings new ones within about 90."""
AGAIN_AFTER = 10
"""Seconds between two attempts to have it look again."""
_RECORD = re.compile(r"ClusterName=\S+ Account=(\S+) UserName=[^\s(]+\((\d+)\)(?:\s|$)")

UidOf = Callable[[str], int | None]


def uid_of(name: str) -> int | None:
    """A user's id on this machine, which has the newest users; or None."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def ensure_it_hears(cluster: str, run: Run, sleep: Callable[[float], None]) -> None:
    """Leaves a word in the database that slurmctld must hear, or else has it read everything."""
    word = f"slurmstack: heard {time.time_ns()}"
    where = ("where", f"cluster={cluster}")
    run(("sacctmgr", "--immediate", "modify", "account", ROOT, *where, "set", f"comment={word}"))
    for _ in range(HEARS_WITHIN):
        if word in _told(run, f"accounts={ROOT}"):
            return
        sleep(1)
    look_again(run)


def await_users(
    things: Mapping[Thing, object],
    run: Run,
    sleep: Callable[[float], None],
    uid_of: UidOf = uid_of,
) -> None:
    """Waits until slurmctld knows who is in which account. Raises `CommandError` where it does not.

    `things` is what the database has. Users whom nobody knows any more do not count.
    """
    wanted = {
        (thing.account, uid)
        for thing in things
        if thing.kind == "user" and (uid := uid_of(thing.name)) is not None
    }
    for second in range(KNOWS_WITHIN):
        missing = wanted - known(_told(run))
        if not missing:
            return
        if second % AGAIN_AFTER == HEARS_WITHIN:
            look_again(run)
        sleep(1)
    account, uid = min(missing)
    raise CommandError(f"slurmctld does not know the user id {uid} in account {account}")


def known(told: str) -> set[tuple[str, int]]:
    """Accounts and user ids of the associations that slurmctld tells of."""
    return {(account, int(uid)) for account, uid in _RECORD.findall(told)}


def _told(run: Run, *which: str) -> str:
    return run(("scontrol", "show", "assoc_mgr", *which, "flags=assoc"))


def look_again(run: Run) -> None:
    """Has it read everything anew, and write down what it was told."""
    run(("scontrol", "reconfigure"))
