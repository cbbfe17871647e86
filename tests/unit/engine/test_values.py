"""Values are sent and received unchanged. Secret values stay secret until code unwraps them."""

from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from engine.values import (
    OUTPUT_VALUE,
    RESOURCE_REFERENCE,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_STRING,
    Properties,
    Secret,
    Value,
    changed_paths,
    contains_unknown,
    format_path,
    from_struct,
    mark_secret_like,
    plain,
    to_struct,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | inner.filter(lambda v: not isinstance(v, Secret)).map(Secret)
    ),
    max_leaves=8,
)


def struct(value: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(value, struct_pb2.Struct())


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_written_values_can_be_read_back(properties: Properties) -> None:
    assert from_struct(to_struct(properties)) == properties


def test_plain_value_contains_the_content_of_every_secret() -> None:
    value: Value = {"a": Secret([Secret(1), {"b": Secret("x")}]), "c": [Secret(None)]}
    assert plain(value) == {"a": [1, {"b": "x"}], "c": [None]}


@given(VALUES)
def test_only_unknown_values_differ_from_themselves(value: Value) -> None:
    assert bool(changed_paths(value, value)) == contains_unknown(value)


def test_whole_numbers_of_the_protocol_become_integers() -> None:
    value = from_struct(struct({"a": 2.0, "b": 2.5}))["a"]
    assert value == 2
    assert isinstance(value, int)


def test_every_marker_of_an_unknown_value_is_recognized() -> None:
    assert from_struct(struct({"a": UNKNOWN_STRING})) == {"a": UNKNOWN}
    number = "3eeb2bf0-c639-47a8-9e75-3b44932eb421"
    assert from_struct(struct({"a": number})) == {"a": UNKNOWN}


def test_secret_that_was_sent_and_received_stays_secret() -> None:
    read = from_struct(struct({"a": {SIGNATURE: SECRET, "value": {"b": "hush"}}}))["a"]
    assert read == Secret({"b": "hush"})
    assert "hush" not in repr(read)


def test_secret_is_sent_in_plain_text_without_option_keep_secrets() -> None:
    written = to_struct({"a": Secret("hush")}, keep_secrets=False)
    assert json_format.MessageToDict(written) == {"a": "hush"}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"value": "x"}, "x"),
        ({"value": "x", "secret": True}, Secret("x")),
        ({}, UNKNOWN),
        ({"secret": True}, Secret(UNKNOWN)),
    ],
    ids=["known", "secret", "unknown", "secret and unknown"],
)
def test_output_value_becomes_its_content(output: dict[str, Any], expected: Value) -> None:
    assert from_struct(struct({"a": {SIGNATURE: OUTPUT_VALUE, **output}})) == {"a": expected}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"urn": "u"}, "u"),
        ({"urn": "u", "id": "i"}, "i"),
        ({"urn": "u", "id": ""}, UNKNOWN),
    ],
    ids=["a component", "a resource", "a resource not yet created"],
)
def test_resource_reference_becomes_its_id_or_urn(
    reference: dict[str, Any], expected: Value
) -> None:
    assert from_struct(struct({"a": {SIGNATURE: RESOURCE_REFERENCE, **reference}})) == {
        "a": expected
    }


def test_new_value_is_secret_where_the_old_value_was_secret() -> None:
    model: Value = {"a": Secret("1"), "b": {"c": [1, Secret(2)]}, "gone": Secret(3)}
    new: Value = {"a": {"deeper": "x"}, "b": {"c": [1, 2, 3]}, "d": 4}
    assert mark_secret_like(new, model) == {
        "a": Secret({"deeper": "x"}),
        "b": {"c": [1, Secret(2), 3]},
        "d": 4,
    }


def test_value_marked_as_secret_contains_no_inner_secrets() -> None:
    assert mark_secret_like({"x": Secret(1)}, Secret(2)) == Secret({"x": 1})


def test_differences_are_listed_by_path() -> None:
    old: Value = {"spec": {"ports": [{"name": "a"}, {"name": "b"}], "gone": 1}, "same": True}
    new: Value = {"spec": {"ports": [{"name": "a"}, {"name": "c"}, 3], "new.key": 2}, "same": True}
    assert [format_path(path) for path in changed_paths(old, new)] == [
        "spec.gone",
        'spec["new.key"]',
        "spec.ports[1].name",
        "spec.ports[2]",
    ]


def test_difference_only_in_secrecy_is_ignored() -> None:
    assert changed_paths({"a": Secret(1)}, {"a": 1}) == ()
    assert changed_paths({"a": Secret({"b": 1})}, {"a": {"b": 2}}) == (("a", "b"),)


def test_true_and_the_number_one_are_different() -> None:
    assert changed_paths({"a": True}, {"a": 1}) == (("a",),)
