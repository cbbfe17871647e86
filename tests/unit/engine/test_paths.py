"""Property paths, and the option ignore_changes, which keeps the stored values at these paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.paths import MISSING, contains, look_up, parse_path, reset
from engine.values import Path, Properties, Secret, format_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec", ("spec",)),
        ("spec.ports[0].name", ("spec", "ports", 0, "name")),
        ('data["a.b"].c', ("data", "a.b", "c")),
        ('["root.key"]', ("root.key",)),
        ("list[*].x", ("list", "*", "x")),
        ("map.*", ("map", "*")),
        ('data["say \\"hi\\""]', ("data", 'say "hi"')),
    ],
)
def test_property_path_is_parsed(text: str, path: Path) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["a[", "a[x]", 'a["b', "a]"])
def test_error_names_an_invalid_property_path(text: str) -> None:
    with pytest.raises(EngineError, match=r"property path .* invalid at column"):
        parse_path(text)


@given(st.lists(st.one_of(st.text(min_size=1), st.integers(0, 99)), min_size=1).map(tuple))
def test_written_property_path_can_be_read_back(path: Path) -> None:
    if path[0] != "*" and not isinstance(path[0], int):
        assert parse_path(format_path(path)) == path


def test_pattern_matches_the_path_and_all_paths_below_it() -> None:
    assert contains(("a",), ("a", 0, "b"))
    assert contains(("a", "*", "b"), ("a", 0, "b", "c"))
    assert not contains(("a", "b"), ("a",))
    assert not contains(("a", "b"), ("a", "c"))


def test_lookup_inside_a_secret_returns_a_secret() -> None:
    value: Properties = {"a": Secret({"b": [1]}), "c": {"d": Secret(2)}}
    assert look_up(value, ("a", "b", 0)) == Secret(1)
    assert look_up(value, ("c", "d")) == Secret(2)
    for path in (("x",), ("a", "b", 1), ("c", 0), ("c", "d", "e")):
        assert look_up(value, path) is MISSING


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", {"a": 1, "b": {"c": 20, "new": 1}, "l": [{"x": 10}, {"x": 20}, {"x": 30}]}),
        ("b.c", {"a": 10, "b": {"c": 2, "new": 1}, "l": [{"x": 10}, {"x": 20}, {"x": 30}]}),
        ("b.new", {"a": 10, "b": {"c": 20}, "l": [{"x": 10}, {"x": 20}, {"x": 30}]}),
        (
            "b.old",
            {"a": 10, "b": {"c": 20, "new": 1, "old": 3}, "l": [{"x": 10}, {"x": 20}, {"x": 30}]},
        ),
        ("b.*", {"a": 10, "b": {"c": 2, "old": 3}, "l": [{"x": 10}, {"x": 20}, {"x": 30}]}),
        ("l[*].x", {"a": 10, "b": {"c": 20, "new": 1}, "l": [{"x": 1}, {"x": 2}, {"x": 30}]}),
        ("l[1].x", {"a": 10, "b": {"c": 20, "new": 1}, "l": [{"x": 10}, {"x": 2}, {"x": 30}]}),
        ("no.such[3].path", None),
    ],
)
def test_ignored_changes_are_set_back_to_the_stored_value(
    pattern: str, expected: Properties | None
) -> None:
    olds: Properties = {"a": 1, "b": {"c": 2, "old": 3}, "l": [{"x": 1}, {"x": 2}]}
    news: Properties = {
        "a": 10,
        "b": {"c": 20, "new": 1},
        "l": [{"x": 10}, {"x": 20}, {"x": 30}],
    }
    before = repr(news)
    assert reset(news, olds, [pattern]) == (expected or news)
    assert repr(news) == before, "the inputs of the program must not change"


def test_value_stays_secret_after_an_ignored_change_inside_it() -> None:
    assert reset({"a": Secret({"b": 2, "c": 3})}, {"a": Secret({"b": 1})}, ["a.b"]) == {
        "a": Secret({"b": 1, "c": 3})
    }
