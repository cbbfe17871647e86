"""Loading providers by name, and secrecy of their results."""

import pytest

from engine.errors import EngineError
from engine.providers import Operation, Resource, load, with_secrecy
from engine.values import Properties, Secret


def test_error_for_an_unsupported_package_names_package_and_remedy() -> None:
    with pytest.raises(EngineError, match=r"provider 'aws': .* deploy this stack with"):
        load("aws", {}, preview=False)


def test_outputs_that_repeat_a_secret_input_are_secret() -> None:
    like: Properties = {"data": {"a": Secret("hush"), "b": "plain"}}
    result: Properties = {"data": {"a": "hush", "b": "plain"}, "status": "ok"}
    marked = with_secrecy({**result, "__inputs": dict(result)}, like, frozenset())
    secret: Properties = {"data": {"a": Secret("hush"), "b": "plain"}, "status": "ok"}
    assert marked == {**secret, "__inputs": secret}


def test_provider_can_mark_outputs_as_always_secret() -> None:
    marked = with_secrecy({"data": {"a": "x"}, "kind": "Secret"}, {}, frozenset({"data"}))
    assert marked == {"data": Secret({"a": "x"}), "kind": "Secret"}


def test_preview_compares_inputs_of_packages_without_a_provider() -> None:
    provider = load("aws", {}, preview=True)
    inputs: Properties = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "lab"}}
    old = Resource("urn", "aws:ec2/vpc:Vpc", "lab", "vpc-1", inputs, {**inputs, "arn": "arn:1"})

    assert provider.check("aws:ec2/vpc:Vpc", "urn", {}, inputs) == inputs
    assert provider.diff(old, inputs).changed == ()
    assert provider.diff(old, {**inputs, "tags": {}}).changed == ("tags.Name",)
    assert provider.preview_outputs("aws:ec2/vpc:Vpc", inputs, None) == inputs
    assert provider.preview_outputs("aws:ec2/vpc:Vpc", inputs, old)["arn"] == "arn:1"
    with pytest.raises(EngineError, match="this engine cannot create resources of this type"):
        provider.create("aws:ec2/vpc:Vpc", "urn", inputs, Operation())
