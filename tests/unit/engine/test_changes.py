"""What a preview shows of a change."""

import pytest

from engine.changes import changes
from engine.planning import Op, Plan
from engine.show import shown
from engine.values import Properties, Secret, Value, changed_paths, format_path


def test_changes_show_their_paths_and_hide_secrets() -> None:
    old: Properties = {"spec": {"a": 1, "b": [1, 2]}, "data": Secret("old"), "gone": True}
    new: Properties = {"spec": {"a": 2, "b": [1, 3], "c": {}}, "data": Secret("new"), "here": "x"}
    planned = Plan(Op.REPLACE, ("spec", "data", "gone", "here"), ("spec.a",))
    lines = changes(old, new, planned, shown)
    assert [(c.path, c.old, c.new) for c in lines] == [
        ("spec.a", "1", "2"),
        ("spec.b[1]", "2", "3"),
        ("data", "[secret]", "[secret]"),
        ("gone", "true", None),
        ("here", None, '"x"'),
    ]
    assert next(c.path for c in lines if c.replaces) == "spec.a"
    assert not any(c.replaces for c in lines if c.path in ("data", "gone", "here"))


def test_change_of_a_file_shows_its_changed_lines() -> None:
    def lines(before: str, after: str) -> tuple[str, ...]:
        planned = Plan(Op.UPDATE, ("data",))
        (change,) = changes({"data": before}, {"data": after}, planned, shown)
        return change.lines

    assert lines("a=1\nb=2\nc=3\n", "a=1\nb=4\nc=3\nd\n") == ("- b=2", "+ b=4", "+ d")
    assert lines('{"a": [1, 2]}', '{"a": [1, 3]}') == ("-   2", "+   3")
    assert lines("one", "two") == ()
    assert lines("[not JSON", "[neither") == ()


@pytest.mark.parametrize(
    ("old", "new", "path", "lines"),
    [
        ({"data": {}}, {"data": {"a.sh": "one\ntwo\n"}}, 'data["a.sh"]', ("+ one", "+ two")),
        ({}, {"data": {"a.sh": "one\ntwo\n"}}, 'data["a.sh"]', ("+ one", "+ two")),
        ({"data": {"a": "one\ntwo\n"}}, {"data": {}}, "data.a", ("- one", "- two")),
        ({"data": {"a": '{"b": 1}'}}, {}, "data.a", ("- {", '-  "b": 1', "- }")),
    ],
)
def test_added_or_removed_file_shows_its_lines(
    old: Properties, new: Properties, path: str, lines: tuple[str, ...]
) -> None:
    planned = Plan(Op.UPDATE, (path if old and new else "data",))

    (change,) = changes(old, new, planned, shown)

    assert (change.path, change.lines) == (path, lines)


def test_added_object_without_files_is_one_value() -> None:
    (change,) = changes({}, {"data": {"a": "b"}}, Plan(Op.UPDATE, ("data",)), shown)

    assert (change.path, change.new, change.lines) == ("data", '{"a": "b"}', ())


def test_change_of_a_secret_file_shows_no_line() -> None:
    old: Properties = {"data": Secret("a\nb")}
    new: Properties = {"data": Secret("a\nc")}
    (change,) = changes(old, new, Plan(Op.UPDATE, ("data",)), shown)
    assert change.lines == ()


def test_change_inside_a_secret_is_hidden() -> None:
    old: Properties = {"data": Secret({"a": "hush"})}
    new: Properties = {"data": Secret({"a": "hush!"})}
    (change,) = changes(old, new, Plan(Op.UPDATE, ("data.a",)), shown)
    assert (change.old, change.new) == ("[secret]", "[secret]")


def pod(*variables: Value) -> Properties:
    containers: list[Value] = [{"name": "slurmd", "env": list(variables)}]
    return {"spec": {"containers": containers}}


def variable(name: str, value: str) -> Value:
    return {"name": name, "value": value}


def places(old: Properties, new: Properties) -> list[tuple[str, str | None, str | None]]:
    paths = tuple(map(format_path, changed_paths(old, new)))
    found = changes(old, new, Plan(Op.UPDATE, paths), shown)
    return [(change.place, change.old, change.new) for change in found]


def test_changes_in_a_list_name_the_item() -> None:
    old = pod(variable("A", "1"), variable("B", "2"))
    new = pod(variable("A", "1"), variable("B", "3"))

    assert places(old, new) == [("spec.containers[slurmd].env[B].value", '"2"', '"3"')]


def test_added_or_removed_item_of_a_list_is_the_only_change() -> None:
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


def test_another_order_of_a_list_is_shown_by_its_names() -> None:
    old = pod(variable("A", "1"), variable("B", "2"))
    new = pod(variable("B", "2"), variable("A", "1"))

    assert places(old, new) == [("spec.containers[slurmd].env", '["A", "B"]', '["B", "A"]')]


@pytest.mark.parametrize(
    "items",
    [
        [1, 2],
        [{"name": "a", "x": 1}, {"name": "a", "x": 2}],
        [{"x": 1}, {"name": "a"}],
        [{"name": 1}, {"name": 2}],
    ],
)
def test_list_without_unique_names_is_compared_by_position(items: list[Value]) -> None:
    (change, *_) = places({"a": items}, {"a": [*items[1:], 3]})

    assert change[0].startswith("a[0]")


def test_paths_of_changes_are_those_of_the_inputs() -> None:
    """A program that reads the preview looks values up by these paths."""
    old = pod(variable("A", "1"), variable("C", "3"))
    new = pod(variable("B", "2"), variable("C", "4"))

    found = changes(old, new, Plan(Op.UPDATE, ("spec",)), shown)

    assert [change.path for change in found] == [
        "spec.containers[0].env[0]",
        "spec.containers[0].env[0]",
        "spec.containers[0].env[1].value",
    ]
