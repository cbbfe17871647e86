"""How the engine reads the requests of a program."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import alias_pb2, resource_pb2

from engine.aliases import Alias
from engine.errors import EngineError
from engine.host import goal_of, parse_duration
from engine.values import Secret, to_struct


def request(**fields: Any) -> Any:
    return resource_pb2.RegisterResourceRequest(type="x:y:Z", name="a", custom=True, **fields)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25)]
)
def test_durations_are_converted_to_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m!", "five"])
def test_error_names_an_invalid_duration(text: str) -> None:
    with pytest.raises(EngineError, match=f"customTimeouts: {text!r}: expected a duration"):
        parse_duration(text)


def test_unset_options_differ_from_options_set_to_false() -> None:
    unset = goal_of(request())
    assert (unset.protect, unset.retain_on_delete, unset.delete_before_replace) == (None,) * 3
    disabled = goal_of(
        request(protect=False, retainOnDelete=False, deleteBeforeReplaceDefined=True)
    )
    assert (
        disabled.protect,
        disabled.retain_on_delete,
        disabled.delete_before_replace,
    ) == (False,) * 3


def test_dependencies_are_sorted_so_that_the_state_is_stable() -> None:
    goal = goal_of(
        request(
            dependencies=["b", "a"],
            propertyDependencies={
                "x": resource_pb2.RegisterResourceRequest.PropertyDependencies(urns=["b", "a"])
            },
        )
    )
    assert goal.dependencies == ("a", "b")
    assert goal.property_dependencies == {"x": ("a", "b")}


def test_each_property_depends_on_all_dependencies_by_default() -> None:
    goal = goal_of(request(dependencies=["a"], object=to_struct({"x": 1, "y": 2})))
    assert goal.property_dependencies == {"x": ("a",), "y": ("a",)}


def test_aliases_may_be_urns_or_specs() -> None:
    goal = goal_of(
        request(
            aliasURNs=["urn:one"],
            aliases=[
                alias_pb2.Alias(urn="urn:two"),
                alias_pb2.Alias(spec=alias_pb2.Alias.Spec(name="old", noParent=True)),
                alias_pb2.Alias(spec=alias_pb2.Alias.Spec(parentUrn="urn:parent")),
            ],
        )
    )
    assert goal.aliases == (
        Alias(urn="urn:one"),
        Alias(urn="urn:two"),
        Alias(name="old", no_parent=True),
        Alias(parent="urn:parent"),
    )


def test_replacement_trigger_may_be_secret_or_absent() -> None:
    assert goal_of(request()).replacement_trigger is None
    holder = to_struct({"t": Secret("x")})
    assert goal_of(request(replacement_trigger=holder.fields["t"])).replacement_trigger == Secret(
        "x"
    )
    null = struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    assert goal_of(request(replacement_trigger=null)).replacement_trigger is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"remote": True}, "remote components"),
        ({"importId": "x"}, "import"),
        ({"packageRef": "x"}, "parameterized packages"),
    ],
)
def test_error_names_an_unsupported_feature(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineError, match=f"{named}: not supported by this engine"):
        goal_of(request(**fields))


@pytest.mark.parametrize("fields", [{"remote": True}, {"packageRef": "x"}])
def test_preview_accepts_resources_of_unsupported_providers(fields: dict[str, Any]) -> None:
    assert goal_of(request(**fields), preview=True) == goal_of(request())
