"""Random values are generated once and kept, as with Pulumi's random provider."""

import string
import uuid
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CheckError, EngineError
from engine.providers import Operation, Resource, load
from engine.values import UNKNOWN, Properties

PROVIDER = load("random", {}, preview=False)

# Inputs and outputs as Pulumi's random provider 4.21.4 writes them to the state.
STORED: list[tuple[str, Properties, Properties]] = [
    (
        "RandomBytes",
        {"keepers": {"epoch": "1"}, "length": 4},
        {"base64": "FdEY6w==", "hex": "15d118eb", "keepers": {"epoch": "1"}, "length": 4},
    ),
    (
        "RandomString",
        {"keepers": {"epoch": "1"}, "length": 8, "special": False},
        {
            "__meta": '{"schema_version":"2"}',
            "id": "HRdVfcLL",
            "keepers": {"epoch": "1"},
            "length": 8,
            "lower": True,
            "minLower": 0,
            "minNumeric": 0,
            "minSpecial": 0,
            "minUpper": 0,
            "number": True,
            "numeric": True,
            "result": "HRdVfcLL",
            "special": False,
            "upper": True,
        },
    ),
    (
        "RandomPassword",
        {"length": 20, "minSpecial": 1, "overrideSpecial": "-_"},
        {
            "__meta": '{"schema_version":"3"}',
            "bcryptHash": "$2a$10$HsFvLK4wI7aLBcqPQiJ8DOGYyeymRSM.MNTWUbd/Q3.SykJ/ukpBi",
            "id": "none",
            "length": 20,
            "lower": True,
            "minLower": 0,
            "minNumeric": 0,
            "minSpecial": 1,
            "minUpper": 0,
            "number": True,
            "numeric": True,
            "overrideSpecial": "-_",
            "result": "-7xSGEcL1sBOXCtXRMzr",
            "special": True,
            "upper": True,
        },
    ),
    (
        "RandomId",
        {"byteLength": 4, "prefix": "x-"},
        {
            "b64Std": "x-sD025g==",
            "b64Url": "x-sD025g",
            "byteLength": 4,
            "dec": "x-2956801766",
            "hex": "x-b03d36e6",
            "id": "sD025g",
            "prefix": "x-",
        },
    ),
    (
        "RandomInteger",
        {"max": 9, "min": 1, "seed": "q"},
        {"id": "6", "max": 9, "min": 1, "result": 6, "seed": "q"},
    ),
    ("RandomPet", {}, {"id": "mint-hen", "length": 2, "separator": "-"}),
    (
        "RandomShuffle",
        {"inputs": ["a", "b", "c"], "resultCount": 5},
        {
            "id": "-",
            "inputs": ["a", "b", "c"],
            "resultCount": 5,
            "results": ["a", "b", "c", "b", "c"],
        },
    ),
    (
        "RandomUuid",
        {"keepers": {"epoch": "1"}},
        {
            "id": "3f9abd8e-f479-ad5b-bee3-72e09cc1e5c3",
            "keepers": {"epoch": "1"},
            "result": "3f9abd8e-f479-ad5b-bee3-72e09cc1e5c3",
        },
    ),
]


def token(name: str) -> str:
    return f"random:index/{name[0].lower()}{name[1:]}:{name}"


def resource(name: str, inputs: Properties, outputs: Properties | None = None) -> Resource:
    return Resource("urn", token(name), "it", "id", inputs, outputs or {})


def draw(name: str, inputs: Properties) -> Mapping[str, Any]:
    checked = PROVIDER.check(token(name), "urn", {}, inputs)
    _, outputs = PROVIDER.create(token(name), "urn", checked, Operation())
    return outputs


@pytest.mark.parametrize(("name", "inputs", "stored"), STORED, ids=[s[0] for s in STORED])
def test_outputs_have_the_names_and_types_that_pulumi_uses(
    name: str, inputs: Properties, stored: Properties
) -> None:
    drawn = draw(name, inputs)
    assert {key: type(value) for key, value in drawn.items()} == {
        key: type(value) for key, value in stored.items()
    }
    echoed = {key: value for key, value in stored.items() if key in inputs}
    assert {key: drawn[key] for key in echoed} == echoed


@pytest.mark.parametrize(("name", "inputs", "stored"), STORED, ids=[s[0] for s in STORED])
def test_state_that_pulumi_wrote_shows_no_changes(
    name: str, inputs: Properties, stored: Properties
) -> None:
    old = resource(name, inputs, stored)
    assert not PROVIDER.diff(old, PROVIDER.check(old.type, "urn", inputs, inputs)).changed


@pytest.mark.parametrize(("name", "inputs", "stored"), STORED, ids=[s[0] for s in STORED])
def test_changed_keeper_generates_a_new_value(
    name: str, inputs: Properties, stored: Properties
) -> None:
    news: Properties = {**inputs, "keepers": {"epoch": "2"}}
    assert PROVIDER.diff(resource(name, inputs, stored), news).replaces == ("keepers",)


@pytest.mark.parametrize(("name", "inputs", "stored"), STORED, ids=[s[0] for s in STORED])
def test_refresh_keeps_the_generated_value(
    name: str, inputs: Properties, stored: Properties
) -> None:
    assert PROVIDER.read(token(name), "urn", "id", inputs, stored) == ("id", inputs, stored)


def test_explicit_default_value_is_not_a_change() -> None:
    old = resource("RandomString", {"length": 8})
    assert not PROVIDER.diff(old, {"length": 8, "special": True, "number": True}).changed


def test_unknown_keeper_generates_a_new_value() -> None:
    old = resource("RandomBytes", {"length": 8, "keepers": {"a": "b"}})
    assert PROVIDER.diff(old, {"length": 8, "keepers": UNKNOWN}).replaces == ("keepers",)


def test_generated_values_are_unknown_in_a_preview() -> None:
    outputs = PROVIDER.preview_outputs(token("RandomBytes"), {"length": 8}, None)
    assert outputs == {"length": 8, "base64": UNKNOWN, "hex": UNKNOWN}


def test_passwords_and_bytes_are_secret_but_ids_are_not() -> None:
    assert PROVIDER.secret_outputs(token("RandomBytes")) == {"base64", "hex"}
    assert PROVIDER.secret_outputs(token("RandomPassword")) == {"bcryptHash", "result"}
    assert PROVIDER.secret_outputs(token("RandomId")) == frozenset()


@given(
    minima=st.fixed_dictionaries(
        {name: st.integers(0, 5) for name in ("minLower", "minUpper", "minNumeric", "minSpecial")}
    ),
    extra=st.integers(1, 10),
)
def test_string_has_the_given_length_and_minimum_character_numbers(
    minima: dict[str, int], extra: int
) -> None:
    length = sum(minima.values()) + extra
    result = draw("RandomString", {**minima, "length": length, "overrideSpecial": "-_"})["result"]
    assert len(result) == length
    for name, characters in [
        ("minLower", string.ascii_lowercase),
        ("minUpper", string.ascii_uppercase),
        ("minNumeric", string.digits),
        ("minSpecial", "-_"),
    ]:
        assert sum(c in characters for c in result) >= minima[name]


def test_string_contains_only_allowed_kinds_of_characters() -> None:
    inputs: Properties = {"length": 200, "upper": False, "special": False, "number": False}
    assert set(draw("RandomString", inputs)["result"]) <= set(string.ascii_lowercase)


def test_id_has_the_same_value_in_every_notation() -> None:
    drawn = draw("RandomId", {"byteLength": 5})
    assert int(drawn["dec"]) == int(drawn["hex"], 16)
    assert len(bytes.fromhex(draw("RandomBytes", {"length": 32})["hex"])) == 32


def test_shuffle_returns_every_item_before_it_repeats_one() -> None:
    results = draw("RandomShuffle", {"inputs": ["a", "b", "c"], "resultCount": 5})["results"]
    assert sorted(results[:3]) == ["a", "b", "c"]
    assert len(results) == 5


def test_same_seed_gives_the_same_value() -> None:
    inputs: Properties = {"min": 0, "max": 10**9, "seed": "q"}
    assert draw("RandomInteger", inputs) == draw("RandomInteger", inputs)


def test_pet_has_the_given_number_of_words() -> None:
    assert draw("RandomPet", {"length": 4, "separator": "_", "prefix": "p"})["id"].count("_") == 4


def test_uuid7_has_version_seven() -> None:
    assert uuid.UUID(draw("RandomUuid7", {})["result"]).version == 7


REFUSED: list[tuple[str, Properties, str]] = [
    ("RandomBytes", {}, "length: is required"),
    ("RandomBytes", {"length": "16"}, "length: '16': expected a number"),
    ("RandomBytes", {"length": True}, "length: True: expected a number"),
    ("RandomBytes", {"length": 0}, "length: 0: expected 1 or more"),
    (
        "RandomBytes",
        {"length": 1, "kepers": {}},
        "kepers: the resource type has no input with this name",
    ),
    ("RandomString", {"length": 3, "minUpper": 4}, "length: 3: expected at least"),
    (
        "RandomString",
        {"length": 3, "upper": False, "lower": False, "numeric": False, "special": False},
        "lower: false: set at least one of lower, upper",
    ),
    ("RandomInteger", {"min": 3, "max": 2}, "min: 3: expected at most 2"),
]


@pytest.mark.parametrize(("name", "inputs", "message"), REFUSED, ids=[r[2] for r in REFUSED])
def test_invalid_inputs_of_random_resources_are_refused(
    name: str, inputs: Properties, message: str
) -> None:
    with pytest.raises(CheckError) as error:
        PROVIDER.check(token(name), "urn", {}, inputs)
    assert str(error.value).startswith(message)


def test_unknown_inputs_are_not_checked() -> None:
    news = cast(Properties, {"length": UNKNOWN, "minUpper": 4})
    assert PROVIDER.check(token("RandomString"), "urn", {}, news) == news


def test_error_names_an_unknown_random_type() -> None:
    with pytest.raises(EngineError, match="RandomThing"):
        PROVIDER.check("random:index/randomThing:RandomThing", "urn", {}, {})
