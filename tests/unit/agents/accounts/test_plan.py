"""What is planned, and that following it leads to what is wanted."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.accounts.fields import default
from agents.accounts.plan import plan
from agents.accounts.things import Job, Mark, Observed, State, Thing, Wanted, read_mark
from tests.unit.agents.accounts.slurm import after

LAB, SUB = Thing("account", "lab"), Thing("account", "sub")
ADA = Thing("user", "ada", "lab")
HIGH = Thing("qos", "high")


def wanted(**fields: Any) -> Wanted:
    return Wanted(cluster="test", **fields)


def ours(*names: str, adopted: bool = False, **fields: str) -> State:
    """A thing that the settings look after, with the fields that they name."""
    return State(fields, Mark(frozenset(names or fields), adopted))


def account(*names: str, adopted: bool = False, **fields: str) -> State:
    """The same of an account, whose parent is always named."""
    return ours("parent", *(names or fields), adopted=adopted, **fields)


def theirs(**fields: str) -> State:
    """A thing that a person made."""
    return State(fields, None, "made by hand")


def there(things: dict[Thing, State], *jobs: Job, partitioned: tuple[Thing, ...] = ()) -> Observed:
    return Observed(things, jobs, frozenset(partitioned))


def told(observed: Observed, want: Wanted) -> list[str]:
    return [str(action) for action in plan(observed, want).actions]


BY_KIND = ("grptres:cpu", "grptres:mem")
NOBODY: dict[Thing, State] = {}
IN_LAB = ours(defaultaccount="lab")
JOB = Job("7", "ada", "lab", "high")
IN_TWO = {
    LAB: account("x"),
    Thing("account", "new"): account("x"),
    ADA: State({"defaultaccount": "lab"}, Mark()),
    Thing("user", "ada", "new"): State({"defaultaccount": "lab"}, Mark()),
}

CASES: list[tuple[str, dict[Thing, State], dict[str, Any], list[str]]] = [
    ("nothing", NOBODY, {}, []),
    (
        "an account comes before who is in it, and a QOS before both",
        NOBODY,
        {
            "users": {"ada": {"lab": {"maxjobs": "3"}}},
            "accounts": {"lab": {"defaultqos": "high"}},
            "qos": {"high": {"priority": "5"}},
        },
        [
            "+ qos high: priority=5",
            "+ account lab: defaultqos=high",
            "+ user ada account lab: maxjobs=3",
        ],
    ),
    (
        "an account comes before those below it",
        NOBODY,
        {"accounts": {"a": {"parent": "z"}, "z": {}}},
        ["+ account z", "+ account a: parent=z"],
    ),
    (
        "a QOS comes before those that preempt it",
        NOBODY,
        {"qos": {"a": {"preempt": "z"}, "z": {}}},
        ["+ qos z", "+ qos a: preempt=z"],
    ),
    (
        "what is so stays",
        {LAB: account(fairshare="5")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        [],
    ),
    (
        "a person's change to a field that the settings name is repaired",
        {LAB: account(fairshare="7")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        ["~ account lab: fairshare=7 → 5"],
    ),
    (
        "a person's change to another field stays",
        {LAB: account("fairshare", fairshare="5", maxjobs="9")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        [],
    ),
    (
        "a field that the settings no longer name is cleared",
        {LAB: account(fairshare="5", maxjobs="9")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        ["~ account lab: maxjobs=9 → none"],
    ),
    (
        "of a limit by kind, one kind is cleared",
        {
            LAB: State(
                {"grptres:cpu": "5", "grptres:mem": "9"}, Mark(frozenset((*BY_KIND, "parent")))
            )
        },
        {"accounts": {"lab": {"grptres:cpu": "5"}}},
        ["~ account lab: grptres:mem=9 → none"],
    ),
    (
        "what the settings set to none and a person limits is without limit again",
        {LAB: account(maxwall="60")},
        {"accounts": {"lab": {"maxwall": ""}}},
        ["~ account lab: maxwall=60 → none"],
    ),
    (
        "what a person made is taken over when the settings name it",
        {LAB: theirs(fairshare="5")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        ["~ account lab: now managed"],
    ),
    (
        "and let go, not removed, when they no longer do",
        {LAB: account("fairshare", adopted=True, fairshare="5")},
        {},
        ["~ account lab: no longer managed"],
    ),
    ("what a person made stays", {LAB: theirs(), ADA: theirs(), HIGH: theirs()}, {}, []),
    (
        "what is ours goes, users first",
        {LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")},
        {},
        ["- user ada account lab", "- account lab", "- qos high"],
    ),
    (
        "what a person deleted comes back",
        {LAB: account("x")},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        ["+ user ada account lab"],
    ),
    (
        "a child goes before its parent",
        {LAB: account("x"), SUB: State({"parent": "lab"}, Mark(frozenset({"parent"})))},
        {},
        ["- account sub", "- account lab"],
    ),
    (
        "a child moves before its parent goes",
        {LAB: account("x"), SUB: account(parent="lab")},
        {"accounts": {"sub": {}}},
        ["~ account sub: parent=lab → root", "- account lab"],
    ),
    (
        "two accounts change places from the top down",
        {LAB: account("parent"), SUB: account(parent="lab")},
        {"accounts": {"lab": {"parent": "sub"}, "sub": {}}},
        ["~ account sub: parent=lab → root", "~ account lab: parent=root → sub"],
    ),
    (
        "who leaves the default account has another first",
        IN_TWO,
        {"accounts": {"lab": {"x": ""}, "new": {"x": ""}}, "users": {"ada": {"new": {}}}},
        ["- user ada account lab: default account becomes new"],
    ),
    (
        "a named default is set before the old one goes",
        IN_TWO,
        {
            "accounts": {"lab": {"x": ""}, "new": {"x": ""}},
            "users": {"ada": {"new": {"defaultaccount": "new"}}},
        },
        ["~ user ada account new: defaultaccount=lab → new", "- user ada account lab"],
    ),
    (
        "of somebody who goes for good the default account goes last",
        IN_TWO,
        {"accounts": {"lab": {"x": ""}, "new": {"x": ""}}},
        ["- user ada account new", "- user ada account lab"],
    ),
    (
        "a rank is taken back",
        {LAB: account("x"), ADA: ours(adminlevel="operator")},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        ["~ user ada account lab: adminlevel=operator → none"],
    ),
    (
        "a rank that a person gave stays",
        {LAB: account("x"), ADA: State({"adminlevel": "operator"}, Mark())},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        [],
    ),
]


@pytest.mark.parametrize(
    ("things", "want", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_plan_says(things: dict[Thing, State], want: dict[str, Any], expected: list[str]) -> None:
    assert told(there(things), wanted(**want)) == expected


def test_what_has_jobs_stays_and_the_line_says_how_it_may_go() -> None:
    found = plan(there({LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")}, JOB), wanted())

    assert found.refusals == tuple(
        f"{thing}: cannot be removed: 1 job uses it; wait for its jobs to end, or add '{thing}' to "
        "accounting.remove_with_jobs to cancel them"
        for thing in ("account lab", "qos high")
    )


@pytest.mark.parametrize(
    "thing", ["account lab", "user ada account lab", "qos high"], ids=lambda thing: thing
)
def test_what_the_line_asks_for_lets_it_go_with_its_jobs(thing: str) -> None:
    things = {LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")}
    kept: dict[str, Any] = {
        "account lab": {"qos": {"high": {"x": ""}}},
        "user ada account lab": {"accounts": {"lab": {"x": ""}}, "qos": {"high": {"x": ""}}},
        "qos high": {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
    }
    first = plan(there(things, JOB), wanted(**kept[thing]))
    second = plan(there(things, JOB), wanted(**kept[thing], remove_with_jobs={thing}))

    assert [line.split(":")[0] for line in first.refusals] == [thing]
    assert second.refusals == ()
    assert any(action.cancels == (JOB,) for action in second.actions)


@pytest.mark.parametrize(
    "inside",
    [Thing("user", "bob", "lab"), Thing("account", "theirs")],
    ids=["a user of somebody's", "an account of somebody's"],
)
def test_an_account_with_something_of_a_persons_in_it_stays(inside: Thing) -> None:
    things = {LAB: account("x"), inside: theirs(parent="lab")}

    found = plan(there(things), wanted())

    assert found.actions == ()
    assert found.notes == (f"account lab stays: it contains {inside}",)


def test_a_user_whom_somebody_gave_a_single_partition_stays() -> None:
    found = plan(there({LAB: account("x"), ADA: IN_LAB}, partitioned=(ADA,)), wanted())

    assert found.actions == ()
    assert len(found.notes) == 2


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize("rest", ["", "of the lab [west]", "slurmstack: not ours"])
@pytest.mark.parametrize("fields", [(), ("grptres:gres/gpu:h100", "maxjobs")])
def test_a_mark_is_read_as_it_was_written(
    adopted: bool, rest: str, fields: tuple[str, ...]
) -> None:
    mark = Mark(frozenset(fields), adopted)

    assert read_mark(mark.text(rest)) == (mark, rest)


@given(st.text())
def test_a_comment_of_a_persons_is_no_mark(text: str) -> None:
    mark, rest = read_mark(text)

    assert mark is not None or rest == text.strip()
    assert mark is None or re.match(r"\s*\[slurmstack", text)


# --- Whatever there is, and whatever is wanted ---------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
PEOPLE = st.sampled_from(["ada", "bob"])
FIELDS = st.dictionaries(
    st.sampled_from(["maxjobs", "maxwall", "grptres:cpu", "grptres:mem"]),
    st.sampled_from(["", "60", "120"]),
)


@st.composite
def wants(draw: st.DrawFn) -> Wanted:
    """Settings without circles: each account and QOS names only such as come before it."""
    names = draw(st.permutations(["a", "b", "c", "d"]))[: draw(st.integers(0, 4))]
    accounts = {}
    for i, name in enumerate(names):
        parent = draw(st.sampled_from([None, *names[:i]]))
        accounts[name] = {**draw(FIELDS), **({"parent": parent} if parent else {})}
    qos = {}
    for i, name in enumerate(names):
        preempt = draw(st.sampled_from([None, *names[:i]]))
        qos[name] = {"priority": "5", **({"preempt": preempt} if preempt else {})}
    users: dict[str, dict[str, dict[str, str]]] = {}
    for name in draw(st.sets(PEOPLE)) if accounts else ():
        within = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        users[name] = {account: draw(FIELDS) for account in within}
        if draw(st.booleans()):
            users[name][within[-1]]["defaultaccount"] = within[-1]
        if draw(st.booleans()):
            users[name][within[0]]["adminlevel"] = "operator"
    return wanted(qos=qos, accounts=accounts, users=users)


@st.composite
def clusters(draw: st.DrawFn) -> Observed:
    """What earlier settings led to, with what people did to it since."""
    found = there({})
    for want in draw(st.lists(wants(), max_size=2)):
        found = after(found, *plan(found, want).actions)
    things = dict(found.things)
    for thing in sorted(things):
        if draw(st.booleans()) and draw(st.booleans()):
            things[thing] = things[thing]._replace(mark=None, comment="ours now")
    return there(things)


@given(clusters(), wants())
@settings(max_examples=400, deadline=None)
def test_following_a_plan_leaves_nothing_to_do(observed: Observed, want: Wanted) -> None:
    first = plan(observed, want)
    assert first.refusals == ()

    done = after(observed, *first.actions)

    assert told(done, want) == []
    for thing, fields in want.things().items():
        present = done.things[thing].fields
        for field, value in fields.items():
            assert present.get(field, default(thing.kind, field)) == value


@given(clusters(), wants(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_plan_that_is_cut_short_is_finished_by_the_next(
    observed: Observed, want: Wanted, data: st.DataObject
) -> None:
    first = plan(observed, want).actions
    cut = data.draw(st.integers(0, len(first)))

    halfway = after(observed, *first[:cut])
    done = after(halfway, *plan(halfway, want).actions)

    assert told(done, want) == []


@given(clusters(), wants())
@settings(max_examples=200, deadline=None)
def test_what_a_person_made_is_never_removed(observed: Observed, want: Wanted) -> None:
    removed = {action.thing for action in plan(observed, want).actions if action.sign == "-"}

    assert all(observed.things[thing].mark for thing in removed)
