"""Providers by name, and secrecy around them."""

import pytest

from engine.errors import EngineError
from engine.providers import load, with_secrecy
from engine.values import Properties, Secret


def test_a_package_without_a_provider_is_named_with_the_remedy() -> None:
    with pytest.raises(EngineError, match=r"package 'aws': .* deploy this stack with"):
        load("aws", {}, preview=False)


def test_results_are_secret_where_the_program_says_so_also_where_inputs_are_repeated() -> None:
    like: Properties = {"data": {"a": Secret("hush"), "b": "plain"}}
    result: Properties = {"data": {"a": "hush", "b": "plain"}, "status": "ok"}
    marked = with_secrecy({**result, "__inputs": dict(result)}, like, frozenset())
    secret: Properties = {"data": {"a": Secret("hush"), "b": "plain"}, "status": "ok"}
    assert marked == {**secret, "__inputs": secret}


def test_what_is_always_secret_is_so_whatever_the_program_says() -> None:
    marked = with_secrecy({"data": {"a": "x"}, "kind": "Secret"}, {}, frozenset({"data"}))
    assert marked == {"data": Secret({"a": "x"}), "kind": "Secret"}
