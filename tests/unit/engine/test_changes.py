"""How a preview shows a change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.changes import changes
from engine.excerpts import WIDTH, both_shortened
from engine.planning import Op, Plan
from engine.show import in_full
from engine.values import Properties, Secret, Value, changed_paths, format_path


def test_changes_show_their_paths_and_hide_secrets() -> None:
    old: Properties = {"spec": {"a": 1, "b": [1, 2]}, "data": Secret("old"), "gone": True}
    new: Properties = {"spec": {"a": 2, "b": [1, 3], "c": {}}, "data": Secret("new"), "here": "x"}
    planned = Plan(Op.REPLACE, ("spec", "data", "gone", "here"), ("spec.a",))
    lines = changes(old, new, planned, in_full)
    assert [(c.path, c.old, c.new) for c in lines] == [
        ("spec.a", "1", "2"),
        ("spec.b", "[1, 2]", "[1, 3]"),
        ("data", "[secret]", "[secret]"),
        ("gone", "true", None),
        ("here", None, '"x"'),
    ]
    assert next(c.path for c in lines if c.replaces) == "spec.a"
    assert not any(c.replaces for c in lines if c.path in ("data", "gone", "here"))


def test_change_of_a_file_shows_its_changed_lines() -> None:
    def lines(before: str, after: str) -> tuple[str, ...]:
        planned = Plan(Op.UPDATE, ("data",))
        (change,) = changes({"data": before}, {"data": after}, planned, in_full)
        return change.lines

    assert lines("a=1\nb=2\nc=3\n", "a=1\nb=4\nc=3\nd\n") == ("- b=2", "+ b=4", "+ d")
    assert lines('{"a": [1, 2]}', '{"a": [1, 3]}') == ("- a[]: 2", "+ a[]: 3")
    assert lines("one", "two") == ()
    assert lines("[not JSON", "[neither") == ()


def test_change_in_json_shows_its_path() -> None:
    def document(cpu: str) -> Properties:
        limits = f'{{"cpu": "{cpu}"}}'
        return {"data": f'{{"qos": {{"large": {limits}}}, "nodes": [{{"name": "a", "x": {cpu}}}]}}'}

    (change,) = changes(document("64"), document("32"), Plan(Op.UPDATE, ("data",)), in_full)

    assert change.lines == (
        "- nodes[a].x: 64",
        '- qos.large.cpu: "64"',
        "+ nodes[a].x: 32",
        '+ qos.large.cpu: "32"',
    )


def test_item_inserted_in_a_json_list_is_the_only_change() -> None:
    old: Properties = {"data": '{"rules": [{"to": 1}, {"to": 3}]}'}
    new: Properties = {"data": '{"rules": [{"to": 1}, {"to": 2}, {"to": 3}]}'}

    (change,) = changes(old, new, Plan(Op.UPDATE, ("data",)), in_full)

    assert change.lines == ("+ rules[].to: 2",)


MANY = "169.254.0.0/16 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32"


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (["b", "c"], ["a", "b", "c"], ("+ a",)),
        (["a", "b", "c"], ["a", "c"], ("- b",)),
        ([1, True], [1, False], ("- true", "+ false")),
        ([], ["a"], ("+ a",)),
        (MANY, f"{MANY} 10.0.0.0/16", ("+ 10.0.0.0/16",)),
        (MANY.replace(" ", ","), f"10.0.0.0/16,{MANY.replace(' ', ',')}", ("+ 10.0.0.0/16",)),
        ("a b", "a c", ()),
    ],
)
def test_change_of_words_shows_removed_and_added_words(
    old: Value, new: Value, lines: tuple[str, ...]
) -> None:
    paths = tuple(map(format_path, changed_paths({"a": old}, {"a": new})))

    (change,) = changes({"a": old}, {"a": new}, Plan(Op.UPDATE, paths), in_full)

    assert (change.path, change.lines) == ("a", lines)


def test_change_of_words_in_a_secret_is_hidden() -> None:
    old: Properties = {"a": Secret(["hush", "b"])}
    new: Properties = {"a": Secret(["hush", "c"])}

    (change,) = changes(old, new, Plan(Op.UPDATE, ("a",)), in_full)

    assert (change.old, change.new, change.lines) == ("[secret]", "[secret]", ())


REGISTRY = "cr.eu-north1.nebius.cloud/e00abcdefgh/hpc/slurmstack"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            f"{REGISTRY}/worker:f9cda9585fbc",
            f"{REGISTRY}/worker:f9cd00000000",
            ('"…/worker:f9cda9585fbc"', '"…/worker:f9cd00000000"'),
        ),
        (
            f"a.example.org/{REGISTRY}/worker:1",
            f"b.example.org/{REGISTRY}/worker:1",
            ('"a.example.org/…"', '"b.example.org/…"'),
        ),
        ("short", "shorter", ('"short"', '"shorter"')),
        (None, "x" * 80, (None, f'"{"x" * 58}…')),
    ],
)
def test_long_values_are_cut_where_they_are_equal(
    old: str | None, new: str, shown: tuple[str | None, str | None]
) -> None:
    before: Properties = {} if old is None else {"a": old}

    (change,) = changes(before, {"a": new}, Plan(Op.UPDATE, ("a",)), in_full)

    assert (change.old, change.new) == shown


@given(*[st.text('ab/ "…', max_size=90)] * 4)
def test_different_values_never_look_the_same(start: str, old: str, new: str, end: str) -> None:
    before, after = f"{start}{old}{end}", f"{start}{new}{end}"

    shown = both_shortened(before, after)

    assert (shown[0] == shown[1]) == (before == after)
    assert all(text is not None and len(text) <= WIDTH for text in shown)


@pytest.mark.parametrize(
    ("old", "new", "path", "lines"),
    [
        ({"data": {}}, {"data": {"a.sh": "one\ntwo\n"}}, 'data["a.sh"]', ("+ one", "+ two")),
        ({}, {"data": {"a.sh": "one\ntwo\n"}}, 'data["a.sh"]', ("+ one", "+ two")),
        ({"data": {"a": "one\ntwo\n"}}, {"data": {}}, "data.a", ("- one", "- two")),
        ({"data": {"a": '{"b": 1}'}}, {}, "data.a", ("- b: 1",)),
    ],
)
def test_added_or_removed_file_shows_its_lines(
    old: Properties, new: Properties, path: str, lines: tuple[str, ...]
) -> None:
    planned = Plan(Op.UPDATE, (path if old and new else "data",))

    (change,) = changes(old, new, planned, in_full)

    assert (change.path, change.lines) == (path, lines)


def test_added_object_without_files_is_one_value() -> None:
    (change,) = changes({}, {"data": {"a": "b"}}, Plan(Op.UPDATE, ("data",)), in_full)

    assert (change.path, change.new, change.lines) == ("data", '{"a": "b"}', ())


def test_change_of_a_secret_file_shows_no_line() -> None:
    old: Properties = {"data": Secret("a\nb")}
    new: Properties = {"data": Secret("a\nc")}
    (change,) = changes(old, new, Plan(Op.UPDATE, ("data",)), in_full)
    assert change.lines == ()


def test_change_inside_a_secret_is_hidden() -> None:
    old: Properties = {"data": Secret({"a": "hush"})}
    new: Properties = {"data": Secret({"a": "hush!"})}
    (change,) = changes(old, new, Plan(Op.UPDATE, ("data.a",)), in_full)
    assert (change.old, change.new) == ("[secret]", "[secret]")


def pod(*variables: Value) -> Properties:
    containers: list[Value] = [{"name": "slurmd", "env": list(variables)}]
    return {"spec": {"containers": containers}}


def variable(name: str, value: str) -> Value:
    return {"name": name, "value": value}


def places(old: Properties, new: Properties) -> list[tuple[str, str | None, str | None]]:
    paths = tuple(map(format_path, changed_paths(old, new)))
    found = changes(old, new, Plan(Op.UPDATE, paths), in_full)
    return [(change.place, change.old, change.new) for change in found]


def test_changes_in_a_list_name_the_item() -> None:
    old = pod(variable("A", "1"), variable("B", "2"))
    new = pod(variable("A", "1"), variable("B", "3"))

    assert places(old, new) == [("spec.containers[slurmd].env[B].value", '"2"', '"3"')]


def test_added_or_removed_list_item_is_the_only_change() -> None:
    few = pod(variable("A", "1"), variable("C", "3"))
    many = pod(variable("A", "1"), variable("B", "2"), variable("C", "3"))
    item = '{"name": "B", "value": "2"}'

    assert places(few, many) == [("spec.containers[slurmd].env[B]", None, item)]
    assert places(many, few) == [("spec.containers[slurmd].env[B]", item, None)]


def test_item_that_moves_in_a_list_shows_its_own_change() -> None:
    old = pod(variable("A", "1"), variable("C", "3"))
    new = pod(variable("B", "2"), variable("A", "1"), variable("C", "4"))

    assert places(old, new) == [
        ("spec.containers[slurmd].env[B]", None, '{"name": "B", "value": "2"}'),
        ("spec.containers[slurmd].env[C].value", '"3"', '"4"'),
    ]


def test_reordered_list_is_shown_by_the_names_of_its_items() -> None:
    old = pod(variable("A", "1"), variable("B", "2"))
    new = pod(variable("B", "2"), variable("A", "1"))

    assert places(old, new) == [("spec.containers[slurmd].env", '["A", "B"]', '["B", "A"]')]


@pytest.mark.parametrize(
    "items",
    [
        ["a\nb", "c"],
        [{"name": "a", "x": 1}, {"name": "a", "x": 2}],
        [{"x": 1}, {"name": "a"}],
        [{"name": 1}, {"name": 2}],
    ],
)
def test_list_without_unique_names_is_compared_by_position(items: list[Value]) -> None:
    (change, *_) = places({"a": items}, {"a": [*items[1:], 3]})

    assert change[0].startswith("a[0]")


def test_paths_of_changes_contain_positions_in_lists() -> None:
    """Programs that read a preview use these paths to look up values."""
    old = pod(variable("A", "1"), variable("C", "3"))
    new = pod(variable("B", "2"), variable("C", "4"))

    found = changes(old, new, Plan(Op.UPDATE, ("spec",)), in_full)

    assert [change.path for change in found] == [
        "spec.containers[0].env[0]",
        "spec.containers[0].env[0]",
        "spec.containers[0].env[1].value",
    ]
