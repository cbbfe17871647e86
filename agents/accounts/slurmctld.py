"""Verify that slurmctld has received the changes of accounts from slurmdbd.

slurmdbd sends each change only once, even if slurmctld does not receive the change.

Slurm 24.11 has two faults:

- After a restart, slurmdbd cannot reach slurmctld until slurmctld sends something. Changes until
  this moment are lost.
- If slurmctld receives a new user before its passwd file contains the user, the user stays unknown
  for an hour.

`scontrol reconfigure` repairs both, without an effect on jobs, because slurmctld then reads all
accounts and users again. slurmctld also saves the accounts at once, instead of every five minutes.
Without a saved copy, a restarted slurmctld needs slurmdbd, which may also be unavailable.
"""

import pwd
import re
import time
from collections.abc import Callable, Mapping

from agents.accounts.sacctmgr import CommandError, Run
from agents.accounts.things import ROOT, Thing

HEARS_WITHIN = 3
"""Seconds within which a change must reach slurmctld."""
KNOWS_WITHIN = 180
"""Seconds within which slurmctld must know all users. The kubelet takes about 90 s to deliver a
new list of users."""
AGAIN_AFTER = 10
"""Seconds between two reconfigurations."""
_RECORD = re.compile(r"ClusterName=\S+ Account=(\S+) UserName=[^\s(]+\((\d+)\)(?:\s|$)")

UidOf = Callable[[str], int | None]


def uid_of(name: str) -> int | None:
    """Return a user's uid, or None if this pod's list of users, the newest, lacks the user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def ensure_it_hears(cluster: str, run: Run, sleep: Callable[[float], None]) -> None:
    """Check that slurmctld receives a change from slurmdbd. Otherwise, reconfigure slurmctld."""
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
    """Wait until slurmctld knows the users of each account. Raises `CommandError` on a timeout.

    `things` are the contents of the database. Users without a uid in this pod are ignored.
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
    raise CommandError(
        f"slurmctld does not know the user with uid {uid} in account '{account}' after "
        f"{KNOWS_WITHIN} s; check that the controller's pod can look up this user with getent"
    )


def known(told: str) -> set[tuple[str, int]]:
    """Return the account and uid of each association that slurmctld reports."""
    return {(account, int(uid)) for account, uid in _RECORD.findall(told)}


def _associations(run: Run, *which: str) -> str:
    return run(("scontrol", "show", "assoc_mgr", *which, "flags=assoc"))


def look_again(run: Run) -> None:
    """Make slurmctld read all accounts and users again, and save them."""
    run(("scontrol", "reconfigure"))
