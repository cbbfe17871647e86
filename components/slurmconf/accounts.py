"""Render the accounts, users and QOS that agents/accounts must create in Slurm."""

import json
import math
from collections.abc import Iterator

from agents.accounts.fields import KINDS, Kind
from agents.accounts.things import Wanted
from components.conventions import CHECKS_USER
from components.settings import Settings, parse_time
from components.settings.accounts import Account, AccountUser, Limits, Qos, UserPartition

Fields = dict[str, str]
_NAMES = {"qos": "qoslevel"}
"""Settings whose field in sacctmgr has another name. Settings whose names differ only by
underscores are not listed."""


def wanted_accounts(settings: Settings) -> str:
    """Render QOS, accounts, and users in accounts, with the fields that are set.

    Values are strings in the canonical form of agents/accounts: lower case, times in seconds,
    memory in MiB, sorted lists.
    """
    accounting = settings.accounting
    accounts = {account.name: _fields(account) for account in accounting.accounts}
    people = _people(settings)
    if settings.long_checks.checks:
        # Long checks run as jobs of this user, who needs an association like all users.
        accounts[CHECKS_USER] = {"description": "long checks"}
        people[CHECKS_USER] = {CHECKS_USER: {}}
    if any(accounting.default_account in of for of in people.values()):
        accounts.setdefault(accounting.default_account, {})
    wanted = Wanted(
        cluster=settings.cluster_name,
        qos=dict(sorted((qos.name, _fields(qos)) for qos in accounting.qos)),
        accounts=dict(sorted(accounts.items())),
        users=dict(sorted(people.items())),
        partitions=_partitions(settings),
        remove_with_jobs=frozenset(accounting.remove_with_jobs),
    )
    content = wanted.model_dump()
    content["remove_with_jobs"] = sorted(wanted.remove_with_jobs)
    return json.dumps(content, indent=1) + "\n"


def _people(settings: Settings) -> dict[str, dict[str, Fields]]:
    """Return the fields of each user in each account. Each user has at least one account."""
    accounting = settings.accounting
    ranks = dict.fromkeys(accounting.operators, "operator")
    ranks |= dict.fromkeys(accounting.administrators, "administrator")
    found: dict[str, dict[str, Fields]] = {}
    for account in accounting.accounts:
        for user in account.users:
            default = {"defaultaccount": account.name} if user.default else {}
            found.setdefault(user.name, {})[account.name] = {**_fields(user), **default}
    for name in (*(user.name for user in settings.users), *ranks):
        found.setdefault(name, {accounting.default_account: {}})
    for name, rank in ranks.items():
        # The admin level belongs to the user. These fields are grouped by account, so store the
        # level with the user's first account.
        next(iter(found[name].values()))["adminlevel"] = rank
    return found


def _partitions(settings: Settings) -> dict[str, dict[str, dict[str, Fields]]]:
    """Return the fields of each user in each account and partition."""
    found: dict[str, dict[str, dict[str, Fields]]] = {}
    for account in settings.accounting.accounts:
        for user in account.users:
            if user.partitions:
                found.setdefault(user.name, {})[account.name] = {
                    partition.name: _fields(partition) for partition in user.partitions
                }
    return found


def _fields(given: Account | AccountUser | UserPartition | Qos) -> Fields:
    return dict(sorted(_written(given)))


def _written(given: Limits) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set; a TRES field yields one field for each TRES."""
    for name in sorted(given.model_fields_set - {"name", "users", "default", "partitions"}):
        value, field = getattr(given, name), _NAMES.get(name, name.replace("_", ""))
        if value is None:
            continue
        if isinstance(value, dict):
            yield from ((f"{field}:{kind}", str(amount)) for kind, amount in value.items())
        elif isinstance(value, tuple):
            yield field, ",".join(sorted(value)).lower()
        elif KINDS[field] is Kind.TIME:
            yield field, _seconds(value)
        else:
            yield field, f"{value:g}" if isinstance(value, float) else str(value).lower()


def _seconds(value: str) -> str:
    """Return seconds, rounded up to whole minutes, because Slurm stores most times in minutes.

    Return "" for no limit.
    """
    minutes = parse_time(value)
    return "" if math.isinf(minutes) else str(math.ceil(minutes) * 60)
