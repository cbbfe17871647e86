"""A plan lists the right steps, and these steps lead to the state that the settings describe.

The agent marks an object that the settings manage: a prefix in the object's comment lists the
fields that the settings set.
"""

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agents.accounts.fields import default
from agents.accounts.plan import Plan, plan
from agents.accounts.things import Job, Mark, Observed, State, Thing, Wanted, read_mark
from tests.unit.agents.accounts.slurm import after

LAB, SUB = Thing("account", "lab"), Thing("account", "sub")
ADA = Thing("user", "ada", "lab")
ON_GPU = Thing("user", "ada", "lab", "gpu")
HIGH = Thing("qos", "high")


def wanted(**fields: Any) -> Wanted:
    return Wanted(cluster="test", **fields)


def ours(*names: str, adopted: bool = False, **fields: str) -> State:
    """Return an object that the settings manage. By default, the settings set all its fields."""
    return State(fields, Mark(frozenset(names or fields), adopted))


def account(*names: str, adopted: bool = False, **fields: str) -> State:
    """Return an account that the settings manage. They always set its parent."""
    return ours("parent", *(names or fields), adopted=adopted, **fields)


def theirs(**fields: str) -> State:
    """Return an object that an administrator created by hand."""
    return State(fields, None, "made by hand")


def cluster_of(things: dict[Thing, State], *jobs: Job) -> Observed:
    return Observed(things, jobs)


def planned(observed: Observed, want: Wanted) -> list[str]:
    return [str(action) for action in plan(observed, want).actions]


BY_KIND = ("grptres:cpu", "grptres:mem")
EMPTY: dict[Thing, State] = {}
IN_LAB = ours(defaultaccount="lab")
JOB = Job("7", "ada", "lab", "high")
IN_TWO = {
    LAB: account("x"),
    Thing("account", "new"): account("x"),
    ADA: State({"defaultaccount": "lab"}, Mark()),
    Thing("user", "ada", "new"): State({"defaultaccount": "lab"}, Mark()),
}

CASES: list[tuple[str, dict[Thing, State], dict[str, Any], list[str]]] = [
    ("empty settings need no steps", EMPTY, {}, []),
    (
        "a QOS is added before accounts, and accounts before their users",
        EMPTY,
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
        "a user is added before the user's limits in a partition",
        {LAB: account()},
        {
            "accounts": {"lab": {}},
            "users": {"ada": {"lab": {}}},
            "partitions": {"ada": {"lab": {"gpu": {"maxjobs": "2"}}}},
        },
        ["+ user ada account lab", "+ user ada account lab partition gpu: maxjobs=2"],
    ),
    (
        "limits in a partition are removed with the user",
        {LAB: account(), ADA: IN_LAB, ON_GPU: ours(maxjobs="2")},
        {"accounts": {"lab": {}}},
        ["- user ada account lab"],
    ),
    (
        "an account is added before its child accounts",
        EMPTY,
        {"accounts": {"a": {"parent": "z"}, "z": {}}},
        ["+ account z", "+ account a: parent=z"],
    ),
    (
        "a QOS is added before the QOS that preempts it",
        EMPTY,
        {"qos": {"a": {"preempt": "z"}, "z": {}}},
        ["+ qos z", "+ qos a: preempt=z"],
    ),
    (
        "a matching account is unchanged",
        {LAB: account(fairshare="5")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        [],
    ),
    (
        "a manual change to a managed field is reverted",
        {LAB: account(fairshare="7")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        ["~ account lab: fairshare=7 → 5"],
    ),
    (
        "a manual change to another field stays",
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
        "one resource is removed from a limit of several resources",
        {
            LAB: State(
                {"grptres:cpu": "5", "grptres:mem": "9"}, Mark(frozenset((*BY_KIND, "parent")))
            )
        },
        {"accounts": {"lab": {"grptres:cpu": "5"}}},
        ["~ account lab: grptres:mem=9 → none"],
    ),
    (
        "a manual limit is removed if the settings set the limit to empty",
        {LAB: account(maxwall="60")},
        {"accounts": {"lab": {"maxwall": ""}}},
        ["~ account lab: maxwall=60 → none"],
    ),
    (
        "an account made by hand is adopted when the settings name it",
        {LAB: theirs(fairshare="5")},
        {"accounts": {"lab": {"fairshare": "5"}}},
        ["~ account lab: slurmstack now manages it"],
    ),
    (
        "an adopted account is released, not removed",
        {LAB: account("fairshare", adopted=True, fairshare="5")},
        {},
        ["~ account lab: slurmstack no longer manages it"],
    ),
    ("objects made by hand stay", {LAB: theirs(), ADA: theirs(), HIGH: theirs()}, {}, []),
    (
        "managed objects are removed, users first",
        {LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")},
        {},
        ["- user ada account lab", "- account lab", "- qos high"],
    ),
    (
        "a user deleted by hand is added again",
        {LAB: account("x")},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        ["+ user ada account lab"],
    ),
    (
        "a child account is removed before its parent",
        {LAB: account("x"), SUB: State({"parent": "lab"}, Mark(frozenset({"parent"})))},
        {},
        ["- account sub", "- account lab"],
    ),
    (
        "a child account moves before its parent is removed",
        {LAB: account("x"), SUB: account(parent="lab")},
        {"accounts": {"sub": {}}},
        ["~ account sub: parent=lab → root", "- account lab"],
    ),
    (
        "two accounts swap places: the new parent moves first",
        {LAB: account("parent"), SUB: account(parent="lab")},
        {"accounts": {"lab": {"parent": "sub"}, "sub": {}}},
        ["~ account sub: parent=lab → root", "~ account lab: parent=root → sub"],
    ),
    (
        "a user gets another default account when the old one is removed",
        IN_TWO,
        {"accounts": {"lab": {"x": ""}, "new": {"x": ""}}, "users": {"ada": {"new": {}}}},
        ["- user ada account lab: default account becomes new"],
    ),
    (
        "a new default account is set before the old one is removed",
        IN_TWO,
        {
            "accounts": {"lab": {"x": ""}, "new": {"x": ""}},
            "users": {"ada": {"new": {"defaultaccount": "new"}}},
        },
        ["~ user ada account new: defaultaccount=lab → new", "- user ada account lab"],
    ),
    (
        "the default account of a removed user is removed last",
        IN_TWO,
        {"accounts": {"lab": {"x": ""}, "new": {"x": ""}}},
        ["- user ada account new", "- user ada account lab"],
    ),
    (
        "an admin level is cleared when the settings no longer name it",
        {LAB: account("x"), ADA: ours(adminlevel="operator")},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        ["~ user ada account lab: adminlevel=operator → none"],
    ),
    (
        "an admin level given by hand stays",
        {LAB: account("x"), ADA: State({"adminlevel": "operator"}, Mark())},
        {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
        [],
    ),
]


@pytest.mark.parametrize(
    ("things", "want", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_plan_lists_the_expected_steps(
    things: dict[Thing, State], want: dict[str, Any], expected: list[str]
) -> None:
    assert planned(cluster_of(things), wanted(**want)) == expected


def test_objects_with_jobs_stay_and_the_refusal_names_a_remedy() -> None:
    found = plan(cluster_of({LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")}, JOB), wanted())

    assert found.refusals == tuple(
        (
            f"{thing}: cannot be removed: 1 job uses it; wait until the jobs end, or add "
            f"'{thing}' to 'accounting.remove_with_jobs' to cancel the jobs"
        )
        for thing in ("account lab", "qos high")
    )


@pytest.mark.parametrize(
    "thing", ["account lab", "user ada account lab", "qos high"], ids=lambda thing: thing
)
def test_setting_remove_with_jobs_cancels_the_jobs(thing: str) -> None:
    things = {LAB: account("x"), ADA: IN_LAB, HIGH: ours("x")}
    kept: dict[str, Any] = {
        "account lab": {"qos": {"high": {"x": ""}}},
        "user ada account lab": {"accounts": {"lab": {"x": ""}}, "qos": {"high": {"x": ""}}},
        "qos high": {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {}}}},
    }
    first = plan(cluster_of(things, JOB), wanted(**kept[thing]))
    second = plan(cluster_of(things, JOB), wanted(**kept[thing], remove_with_jobs={thing}))

    assert [line.split(":")[0] for line in first.refusals] == [thing]
    assert second.refusals == ()
    assert any(action.cancels == (JOB,) for action in second.actions)


@pytest.mark.parametrize(
    "inside",
    [Thing("user", "bob", "lab"), Thing("account", "theirs")],
    ids=["a user made by hand", "an account made by hand"],
)
def test_account_that_contains_objects_made_by_hand_stays(inside: Thing) -> None:
    things = {LAB: account("x"), inside: theirs(parent="lab")}

    found = plan(cluster_of(things), wanted())

    assert found.actions == ()
    assert found.notes == (
        (
            f"account lab is not removed: it contains {inside}, which the settings do not manage; "
            f"remove {inside} with sacctmgr first"
        ),
    )


def test_user_with_a_partition_association_made_by_hand_stays() -> None:
    found = plan(cluster_of({LAB: account("x"), ADA: IN_LAB, ON_GPU: theirs()}), wanted())

    assert found.actions == ()
    assert len(found.notes) == 2


@pytest.mark.parametrize(("partitions", "refused"), [("gpu,cpu", True), ("cpu", False)])
def test_association_stays_while_jobs_are_in_its_partition(partitions: str, refused: bool) -> None:
    things = {LAB: account("x"), ADA: IN_LAB, ON_GPU: ours(maxjobs="2")}
    job = JOB._replace(partitions=partitions)
    users = {"ada": {"lab": {"defaultaccount": "lab"}, "sub": {}}}
    kept = {"accounts": {"lab": {}, "sub": {}}, "users": users}

    found = plan(cluster_of(things, job), wanted(**kept))

    assert bool(found.refusals) == refused


def test_partition_limits_of_a_users_only_account_cannot_be_removed() -> None:
    """Slurm refuses to remove an association with the user's default account. This user has no
    other account that could become the default."""
    things = {LAB: account("x"), ADA: IN_LAB, ON_GPU: ours(maxjobs="2")}
    kept = {"accounts": {"lab": {"x": ""}}, "users": {"ada": {"lab": {"defaultaccount": "lab"}}}}

    found = plan(cluster_of(things), wanted(**kept))

    assert found.actions == ()
    (refusal,) = found.refusals
    assert refusal.startswith("user ada account lab partition gpu: cannot be removed: ")
    assert "add the user to another account" in refusal


def test_default_account_changes_while_its_partition_limits_are_removed() -> None:
    things = {LAB: account("x"), SUB: account("x"), ADA: IN_LAB, ON_GPU: ours(maxjobs="2")}
    users = {"ada": {"lab": {"defaultaccount": "lab"}, "sub": {}}}
    kept = {"accounts": {"lab": {"x": ""}, "sub": {"x": ""}}, "users": users}

    found = plan(cluster_of(things), wanted(**kept))

    assert [str(action) for action in found.actions] == [
        "+ user ada account sub",
        "- user ada account lab partition gpu",
    ]
    assert found.actions[-1].interim == "sub"
    after(cluster_of(things), *found.actions)


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize("rest", ["", "of the lab [west]", "slurmstack: not ours"])
@pytest.mark.parametrize("fields", [(), ("grptres:gres/gpu:h100", "maxjobs")])
def test_parsed_mark_equals_the_written_mark(
    adopted: bool, rest: str, fields: tuple[str, ...]
) -> None:
    mark = Mark(frozenset(fields), adopted)

    assert read_mark(mark.text(rest)) == (mark, rest)


@given(st.text())
def test_comment_without_our_prefix_is_not_a_mark(text: str) -> None:
    mark, rest = read_mark(text)

    assert mark is not None or rest == text.strip()
    assert mark is None or re.match(r"\s*\[slurmstack", text)


# --- Any state and any settings ------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
PEOPLE = st.sampled_from(["ada", "bob"])
FIELDS = st.dictionaries(
    st.sampled_from(["maxjobs", "maxwall", "grptres:cpu", "grptres:mem"]),
    st.sampled_from(["", "60", "120"]),
)


@st.composite
def wants(draw: st.DrawFn) -> Wanted:
    """Return settings without cycles: each account and QOS names only earlier ones."""
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
    partitions = {
        name: {account: {"gpu": draw(FIELDS)} for account in within if draw(st.booleans())}
        for name, within in users.items()
    }
    return wanted(qos=qos, accounts=accounts, users=users, partitions=partitions)


@st.composite
def clusters(draw: st.DrawFn) -> Observed:
    """Return the state after earlier settings and later manual changes."""
    found = cluster_of({})
    for want in draw(st.lists(wants(), max_size=2)):
        found = after(found, *plan(found, want).actions)
    things = dict(found.things)
    for thing in sorted(things):
        if draw(st.booleans()) and draw(st.booleans()):
            things[thing] = things[thing]._replace(mark=None, comment="ours now")
    return cluster_of(things)


def assume_possible(found: Plan) -> None:
    """Skip the example if the plan refuses a step. Without jobs, a plan refuses only to remove
    partition limits from a user's only account."""
    assert all("cannot remove a partition's association" in refusal for refusal in found.refusals)
    assume(not found.refusals)


@given(clusters(), wants())
@settings(max_examples=400)
def test_executed_plan_leaves_nothing_to_do(observed: Observed, want: Wanted) -> None:
    first = plan(observed, want)
    assume_possible(first)

    done = after(observed, *first.actions)

    assert planned(done, want) == []
    for thing, fields in want.things().items():
        present = done.things[thing].fields
        for field, value in fields.items():
            assert present.get(field, default(thing.kind, field)) == value


@given(clusters(), wants(), st.data())
@settings(max_examples=200)
def test_next_plan_finishes_an_interrupted_plan(
    observed: Observed, want: Wanted, data: st.DataObject
) -> None:
    first = plan(observed, want)
    assume_possible(first)
    cut = data.draw(st.integers(0, len(first.actions)))

    halfway = after(observed, *first.actions[:cut])
    done = after(halfway, *plan(halfway, want).actions)

    assert planned(done, want) == []


@given(clusters(), wants())
@settings(max_examples=200)
def test_objects_made_by_hand_are_never_removed(observed: Observed, want: Wanted) -> None:
    removed = {action.thing for action in plan(observed, want).actions if action.sign == "-"}

    assert all(observed.things[thing].mark for thing in removed)
