"""Model of Slurm's accounting database. It asserts that Slurm would accept each change."""

from agents.accounts.fields import default, with_defaults
from agents.accounts.things import ROOT, Action, Job, Observed, State, Thing, read_mark


def after(observed: Observed, *actions: Action) -> Observed:
    """Return the database after the actions. Assert that Slurm would accept each action."""
    things, jobs = dict(observed.things), observed.jobs
    for action in actions:
        jobs = tuple(job for job in jobs if job not in action.cancels)
        if action.sign == "-":
            _remove(things, jobs, action)
        else:
            _set(things, action)
    return Observed(things, jobs)


def _set(things: dict[Thing, State], action: Action) -> None:
    thing, fields = action.thing, dict(action.changes)
    old = things.get(thing, State({}))
    assert (action.sign == "+") == (thing not in things), (
        f"{action}: '+' must add an object that does not exist, '~' must change one that exists"
    )
    above = thing.account or (fields.get("parent", ROOT) if thing.kind == "account" else ROOT)
    assert above == ROOT or Thing("account", above) in things, (
        f"{action}: the account or parent does not exist"
    )
    if thing.kind == "account" and "parent" in fields:
        assert thing.name not in _line(things, fields["parent"]), (
            f"{action}: the account would be below itself"
        )
    assert not thing.partition or thing.whole() in things, f"{action}: the user does not exist"
    new = with_defaults(thing.kind, {**old.fields, **fields}.items())
    mark = read_mark(action.comment) if action.comment is not None else (old.mark, old.comment)
    things[thing] = State(new, *mark)
    if thing.kind == "user" and not thing.partition:
        first = not any(other[:2] == thing[:2] and other != thing for other in things)
        if first:
            fields.setdefault("defaultaccount", thing.account)
        _spread(things, thing.name, fields)


def _remove(things: dict[Thing, State], jobs: tuple[Job, ...], action: Action) -> None:
    thing = action.thing
    assert thing in things, f"{action}: does not exist"
    removed = {"user": (thing.name, thing.account), "account": (thing.name,), "qos": (thing.name,)}
    for job in jobs:
        used = {"user": (job.user, job.account), "account": (job.account,), "qos": (job.qos,)}
        elsewhere = thing.partition and thing.partition not in job.partitions.split(",")
        assert elsewhere or used[thing.kind] != removed[thing.kind], f"{action}: Job(s) active"
    if thing.kind == "account":
        for other, state in things.items():
            assert other.account != thing.name, f"{action}: would also remove {other}"
            assert state.fields.get("parent") != thing.name, f"{action}: would also remove {other}"
    if thing.partition:
        default_account = things[thing.whole()].fields.get("defaultaccount")
        if action.interim:
            assert default_account == thing.account, (
                f"{action}: sets another default account, but '{thing.account}' is not the default"
            )
            default_account = action.interim
            assert thing.whole()._replace(account=default_account) in things, (
                f"{action}: the user is not in the account {default_account}"
            )
        assert default_account != thing.account, f"{action}: You can not remove the default account"
    if thing.kind == "user" and not thing.partition:
        for other in [one for one in things if one != thing and one.whole() == thing]:
            del things[other]
        changes = dict(action.changes)
        if action.new_default:
            changes["defaultaccount"] = action.new_default
        _spread(things, thing.name, changes)
        last = not any(other[:2] == thing[:2] and other != thing for other in things)
        is_default = things[thing].fields.get("defaultaccount") == thing.account
        assert last or not is_default, f"{action}: You can not remove the default account"
    del things[thing]


def _spread(things: dict[Thing, State], user: str, fields: dict[str, str]) -> None:
    """Set a user's default account and admin level. Slurm stores one value for all accounts."""
    own = {f: v for f, v in fields.items() if f in ("defaultaccount", "adminlevel")}
    for thing, state in things.items():
        if thing[:2] == ("user", user) and not thing.partition:
            held = next(
                (
                    {f: v for f, v in s.fields.items() if f in ("defaultaccount", "adminlevel")}
                    for t, s in things.items()
                    if t[:2] == ("user", user) and t != thing and not t.partition
                ),
                {},
            )
            merged = with_defaults("user", {**held, **state.fields, **own}.items())
            things[thing] = state._replace(fields=merged)


def _line(things: dict[Thing, State], name: str) -> list[str]:
    """Return the account and its ancestors."""
    found: list[str] = []
    while name != ROOT and name not in found:
        found.append(name)
        state = things.get(Thing("account", name), State({}))
        name = state.fields.get("parent", default("account", "parent"))
    return found
