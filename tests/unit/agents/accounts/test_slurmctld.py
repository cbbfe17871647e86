"""slurmctld is made to hear of changes, and to know whom the database knows."""

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
    """Hears, or learns of users, only after it was told to look again so many times."""

    def __init__(self, deaf_until: int = 0, **uids: int) -> None:
        self.deaf_until, self.uids = deaf_until, uids
        self.looked, self.word, self.words = 0, "", 0

    def __call__(self, words: Sequence[str]) -> str:
        if words[:2] == ("scontrol", "reconfigure"):
            self.looked += 1
        elif words[0] == "scontrol":
            heard = self.looked >= self.deaf_until
            users = [
                record("lab", f"{n}({uid if heard else 2**32 - 2})") for n, uid in UIDS.items()
            ]
            return record("lab") + "".join(users) + (self.word if heard else "")
        else:
            self.word, self.words = words[-1].removeprefix("comment="), self.words + 1
        return ""


def uid_of(name: str) -> int | None:
    return UIDS.get(name)


def test_one_that_hears_is_left_alone() -> None:
    hearing = Slurmctld()

    slurmctld.ensure_it_hears("test", hearing, lambda _: None)
    slurmctld.await_users(THINGS, hearing, lambda _: None, uid_of)

    assert (hearing.words, hearing.looked) == (1, 0)


def test_one_that_does_not_hear_reads_everything_anew() -> None:
    deaf = Slurmctld(deaf_until=1)

    slurmctld.ensure_it_hears("test", deaf, lambda _: None)

    assert deaf.looked == 1


def test_it_looks_again_until_it_knows_all_users_that_there_are() -> None:
    late = Slurmctld(deaf_until=3)
    waited: list[float] = []

    slurmctld.await_users(THINGS, late, waited.append, uid_of)

    assert late.looked == 3
    assert sum(waited) < slurmctld.KNOWS_WITHIN


def test_whom_it_never_knows_is_told() -> None:
    with pytest.raises(CommandError, match="does not know the user id 2000 in account lab"):
        slurmctld.await_users(THINGS, Slurmctld(deaf_until=99), lambda _: None, uid_of)
