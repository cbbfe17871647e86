"""slurmctld receives changes of the database, and knows all users of the database."""

from collections.abc import Sequence

import pytest

from agents.accounts import slurmctld
from agents.accounts.sacctmgr import CommandError
from agents.accounts.things import Thing

UIDS = {"ada": 2000, "bob": 2001}
THINGS = {
    Thing("account", "lab"): None,
    Thing("user", "ada", "lab"): None,
    Thing("user", "bob", "lab"): None,
    Thing("user", "gone", "lab"): None,
}


def record(account: str, user: str = "") -> str:
    return f"ClusterName=test Account={account} UserName={user} Partition= Priority=0 ID=1\n"


class Slurmctld:
    """Fake slurmctld that receives updates and knows users only after `deaf_until`
    reconfigurations."""

    def __init__(self, deaf_until: int = 0, **uids: int) -> None:
        self.deaf_until, self.uids = deaf_until, uids
        self.reconfigured, self.comment, self.updates = 0, "", 0

    def __call__(self, words: Sequence[str]) -> str:
        if words[:2] == ("scontrol", "reconfigure"):
            self.reconfigured += 1
        elif words[0] == "scontrol":
            heard = self.reconfigured >= self.deaf_until
            users = [
                record("lab", f"{n}({uid if heard else 2**32 - 2})") for n, uid in UIDS.items()
            ]
            return record("lab") + "".join(users) + (self.comment if heard else "")
        else:
            self.comment, self.updates = words[-1].removeprefix("comment="), self.updates + 1
        return ""


def uid_of(name: str) -> int | None:
    return UIDS.get(name)


def test_slurmctld_that_receives_updates_is_not_reconfigured() -> None:
    hearing = Slurmctld()

    slurmctld.ensure_it_hears("test", hearing, lambda _: None)
    slurmctld.await_users(THINGS, hearing, lambda _: None, uid_of)

    assert (hearing.updates, hearing.reconfigured) == (1, 0)


def test_slurmctld_that_receives_no_updates_is_reconfigured() -> None:
    deaf = Slurmctld(deaf_until=1)

    slurmctld.ensure_it_hears("test", deaf, lambda _: None)

    assert deaf.reconfigured == 1


def test_slurmctld_is_reconfigured_until_it_knows_all_users_with_uids() -> None:
    late = Slurmctld(deaf_until=3)
    waited: list[float] = []

    slurmctld.await_users(THINGS, late, waited.append, uid_of)

    assert late.reconfigured == 3
    assert sum(waited) < slurmctld.KNOWS_WITHIN


def test_command_fails_if_slurmctld_does_not_learn_a_user() -> None:
    with pytest.raises(CommandError, match="does not know the user with uid 2000 in account 'lab'"):
        slurmctld.await_users(THINGS, Slurmctld(deaf_until=99), lambda _: None, uid_of)
