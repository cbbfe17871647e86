"""What a preview shows of a change."""

import pytest

from engine.changes import changes
from engine.planning import Op, Plan
from engine.show import shown
from engine.values import Properties, Secret


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
