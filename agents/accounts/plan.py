"""Compute the steps that make Slurm's accounts match the settings. All functions are pure.

A *thing* is a QOS, an account, or a user's association with an account.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from agents.accounts.fields import default, with_defaults
from agents.accounts.things import (
    ROOT,
    Action,
    Job,
    Mark,
    Observed,
    State,
    Thing,
    Wanted,
    jobs_on,
)


@dataclass(frozen=True)
class Plan:
    """Actions in an order that Slurm accepts, and reasons to refuse the plan."""

    actions: tuple[Action, ...] = ()
    refusals: tuple[str, ...] = ()
    """One line each. A plan with a refusal is not carried out."""
    notes: tuple[str, ...] = ()
    """One line for each thing that stays although the settings no longer contain it. The reason is
    that it contains other things, which people made."""


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """Return the plan: additions and changes (parents first), then removals (children first)."""
    wanted_things = wanted.things()
    added = [
        _add(thing, wanted_things[thing])
        for thing in _order(wanted_things)
        if thing not in observed.things
    ]
    changed = [
        action
        for thing in _order(wanted_things)
        if thing in observed.things
        and (action := _change(thing, observed.things[thing], wanted_things[thing], wanted))
    ]
    ours = {thing: state for thing, state in observed.things.items() if state.mark}
    unwanted = {thing: state for thing, state in ours.items() if thing not in wanted_things}
    released = [_release(t, state) for t, state in unwanted.items() if _is_adopted(state)]
    to_remove = {thing for thing, state in unwanted.items() if not _is_adopted(state)}
    kept = _held(to_remove, observed, wanted_things)
    to_remove -= kept.keys()
    ranks = {"qos": 0, "account": 1, "user": 2}
    additions = sorted(added, key=lambda action: ranks[action.thing.kind])
    changes = sorted([*changed, *released], key=lambda action: ranks[action.thing.kind])
    removals, refusals = _removals(to_remove, observed, wanted)
    return Plan(
        (*additions, *changes, *removals),
        refusals,
        tuple(f"{thing} is not removed: {reason}" for thing, reason in sorted(kept.items())),
    )


# --- Additions and changes -----------------------------------------------------------------------


def _order(wanted_things: Mapping[Thing, Mapping[str, str]]) -> list[Thing]:
    """Sort things: an account follows its parent, a QOS follows the QOS that it preempts, and a
    user's association for one partition follows the user's association for all partitions."""
    graph: dict[Thing, set[Thing]] = {}
    for thing, fields in sorted(wanted_things.items()):
        named: set[Thing] = set()
        if thing.kind == "account":
            named.add(Thing("account", fields.get("parent", ROOT)))
        if thing.kind == "qos":
            names = filter(None, fields.get("preempt", "").split(","))
            named |= {Thing("qos", name) for name in names}
        if thing.partition:
            named.add(thing.whole())
        graph[thing] = named & wanted_things.keys()
    return list(TopologicalSorter(graph).static_order())


def _add(thing: Thing, fields: Mapping[str, str]) -> Action:
    changes = with_defaults(thing.kind, fields.items())
    return Action("+", thing, changes, comment=Mark(frozenset(fields)).text(""))


def _change(thing: Thing, state: State, fields: Mapping[str, str], wanted: Wanted) -> Action | None:
    """Return the change that makes a thing match the settings, or None.

    Fields that the settings never contained stay. Fields that were removed from the settings return
    to their defaults.
    """
    no_longer = (state.mark.fields if state.mark else frozenset()) - fields.keys()
    # A user with an account always has a default account. Keep the present one if the settings
    # define no default account.
    no_longer -= {"defaultaccount"}
    if thing.kind == "user" and _has_rank(thing.name, wanted):
        # Keep the admin level: the settings still define it, in another account of the user.
        no_longer -= {"adminlevel"}
    goal = {**fields, **{field: default(thing.kind, field) for field in no_longer}}
    present = {field: state.fields.get(field, default(thing.kind, field)) for field in goal}
    changes = {field: value for field, value in goal.items() if value != present[field]}
    mark = Mark(frozenset(fields), state.mark is None or state.mark.adopted)
    if not changes and mark == state.mark:
        return None
    before = {field: present[field] for field in changes}
    managed = (
        "the list of fields that slurmstack manages changes"
        if state.mark
        else "slurmstack now manages it"
    )
    note = "" if changes else managed
    return Action("~", thing, changes, before, mark.text(state.comment), note=note)


def _has_rank(user: str, wanted: Wanted) -> bool:
    return any("adminlevel" in fields for fields in wanted.users.get(user, {}).values())


def _is_adopted(state: State) -> bool:
    return state.mark is not None and state.mark.adopted


def _release(thing: Thing, state: State) -> Action:
    """Remove the mark from a thing that existed before it was in the settings. The thing stays."""
    return Action("~", thing, comment=state.comment, note="slurmstack no longer manages it")


# --- Removals ------------------------------------------------------------------------------------


def _held(
    to_remove: set[Thing], observed: Observed, wanted_things: Mapping[Thing, Mapping[str, str]]
) -> dict[Thing, str]:
    """Return the things that must stay because they contain things that people made.

    The values are the reasons. `to_remove` are the things that the settings no longer contain.
    """
    kept: dict[Thing, str] = {}
    while True:
        staying = (observed.things.keys() - to_remove) | kept.keys()
        more = {
            thing: (
                f"it contains {inside}, which the settings do not manage; remove {inside} with "
                "sacctmgr first"
            )
            for thing in sorted(to_remove - kept.keys())
            if (inside := _inside(thing, staying, observed, wanted_things))
        }
        if not more:
            return kept
        kept |= more


def _inside(
    holder: Thing,
    staying: Iterable[Thing],
    observed: Observed,
    wanted_things: Mapping[Thing, Mapping[str, str]],
) -> Thing | None:
    """Return the first of the `staying` things that is in `holder`, or None.

    `holder` is an account, or a user's association for all partitions.
    """
    for thing in sorted(staying):
        if holder.kind == "user" and thing.partition and thing.whole() == holder:
            return thing
        if holder.kind != "account" or thing.kind == "qos" or thing == holder:
            continue
        # Use the parent from the settings, because changes come before removals.
        fields = wanted_things.get(thing, observed.things[thing].fields)
        if holder.name == (thing.account or fields.get("parent")):
            return thing
    return None


def _removals(
    to_remove: set[Thing], observed: Observed, wanted: Wanted
) -> tuple[list[Action], tuple[str, ...]]:
    actions, refusals = [], []
    for thing in _removal_order(to_remove, observed):
        if thing.partition and thing.whole() in to_remove:
            continue  # The removal of the user from the account also removes this association.
        above = Thing("account", thing.account)
        jobs = jobs_on(thing, observed.jobs)
        names = {str(thing), *([str(above)] if above in to_remove else [])}
        if jobs and not names & wanted.remove_with_jobs:
            # The refusal of the account covers the jobs of its users.
            if above not in to_remove:
                refusals.append(_refusal(thing, len(jobs)))
            continue
        action = _remove(thing, to_remove, observed, wanted, jobs)
        if thing.partition and _is_default(thing, observed, wanted):
            action = replace(action, interim=_interim(thing, observed, wanted))
            if not action.interim:
                refusals.append(
                    f"{thing}: cannot be removed: Slurm cannot remove a partition's "
                    f"association while {thing.account} is the user's default account; set "
                    f"'default: true' for {thing.account}, and add the user to another "
                    "account until the next deploy"
                )
                continue
        actions.append(action)
    return actions, tuple(refusals)


def _interim(thing: Thing, observed: Observed, wanted: Wanted) -> str | None:
    """Return an account that can be the user's default while `thing` is removed.

    `thing` is an association for one partition, in the user's default account.

    Returns None if the user has no other account, or if the settings do not name the default
    account. The run changes the default account temporarily. If the run were killed then, a later
    run would not know which account to restore.
    """
    accounts = [*wanted.users.get(thing.name, {})]
    accounts += [
        one.account for one in sorted(observed.things) if one[:2] == thing[:2] and not one.partition
    ]
    other = next((account for account in accounts if account != thing.account), None)
    named = wanted.users.get(thing.name, {}).get(thing.account, {})
    is_named = named.get("defaultaccount") == thing.account
    return other if is_named else None


def _is_default(thing: Thing, observed: Observed, wanted: Wanted) -> bool:
    """Return whether the thing's account is the user's default account after all changes, just
    before the first removal."""
    for fields in wanted.users.get(thing.name, {}).values():
        if "defaultaccount" in fields:
            return fields["defaultaccount"] == thing.account
    whole = observed.things.get(thing.whole())
    return whole is not None and whole.fields.get("defaultaccount") == thing.account


def _removal_order(to_remove: set[Thing], observed: Observed) -> list[Thing]:
    """Sort removals: users before accounts, children before parents, QOS last.

    A user's associations for single partitions come first, and the user's association with the
    default account comes last.
    """

    def depth(thing: Thing) -> int:
        steps, name = 0, thing.name
        while name not in (ROOT, "") and steps < len(observed.things):
            state = observed.things.get(Thing("account", name))
            name = state.fields.get("parent", ROOT) if state else ""
            steps += 1
        return steps

    ranks = {"user": 0, "account": 1, "qos": 2}

    def rank(thing: Thing) -> tuple[object, ...]:
        is_default = observed.things[thing].fields.get("defaultaccount") == thing.account
        deep = -depth(thing) if thing.kind == "account" else 0
        return ranks[thing.kind], deep, thing.name, not thing.partition, is_default, thing

    return sorted(to_remove, key=rank)


def _refusal(thing: Thing, jobs: int) -> str:
    users = "1 job uses it" if jobs == 1 else f"{jobs} jobs use it"
    return (
        f"{thing}: cannot be removed: {users}; wait until the jobs end, or add '{thing}' to "
        "'accounting.remove_with_jobs' to cancel the jobs"
    )


def _remove(
    thing: Thing, to_remove: set[Thing], observed: Observed, wanted: Wanted, jobs: tuple[Job, ...]
) -> Action:
    state = observed.things[thing]
    changes: dict[str, str] = {}
    new_default = None
    if thing.kind == "user" and not thing.partition:
        ranked = state.mark is not None and "adminlevel" in state.mark.fields
        if ranked and not _has_rank(thing.name, wanted):
            changes["adminlevel"] = default("user", "adminlevel")
        if state.fields.get("defaultaccount") == thing.account:
            new_default = _next_default(thing, to_remove, observed, wanted)
    return Action("-", thing, changes, cancels=jobs, new_default=new_default)


def _next_default(
    thing: Thing, to_remove: set[Thing], observed: Observed, wanted: Wanted
) -> str | None:
    """Return the account that replaces a user's default account.

    Returns None if no other account is left, or if the settings define a default account.
    """
    named = wanted.users.get(thing.name, {})
    if any("defaultaccount" in fields for fields in named.values()):
        return None
    others = (t.account for t in sorted(observed.things.keys() - to_remove) if t[:2] == thing[:2])
    return next((account for account in (*named, *others)), None)
