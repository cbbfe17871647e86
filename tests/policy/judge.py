"""Run the policy pack, as Pulumi's SDK does, on the recorded resources of a stack and on single
resources."""

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format, struct_pb2
from pulumi_policy import (
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.deserialize import deserialize_properties
from pulumi_policy.policy import PolicyCustomTimeouts
from pulumi_policy.proxy import UnknownValueError, unknown_checking_proxy

from engine.values import from_struct, to_struct
from policy.allowed import Allowed
from policy.pack import policies
from tests.support.graph import Graph

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Text that the SDK uses in a preview for a value that Pulumi knows only during the update."""
MADE = "random:index/randomPassword:RandomPassword"
SECRET = "always the same"
"""Value of every generated secret in the recorded stacks."""

Props = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """A resource in the form in which an engine sends it to a policy pack."""

    type: str
    name: str
    props: Props
    protect: bool = False
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def urn(self) -> str:
        return f"urn:pulumi:test::slurmstack::{self.type}::{self.name}"


Stack = tuple[Shown, ...]
Findings = frozenset[tuple[str, str]]
"""Violations: pairs of a policy's name and a resource's name. An empty resource name means the
whole stack."""


@dataclass(frozen=True)
class Judgement:
    broken: Findings
    unknown: Findings
    """Policies that could not be evaluated because of unknown values, each with the resource's
    name. For a policy about the whole stack, this name is empty."""


def shown(graph: Graph) -> Stack:
    """Convert a recorded stack. Add each generated secret as an output of the resource that
    generates the secret."""
    names = {resource.urn: resource.name for resource in graph.resources}
    made = {resource.urn for resource in graph.resources if resource.type == MADE}
    return tuple(
        Shown(
            resource.type,
            resource.name,
            {
                **deserialize_properties(_without_references(resource.inputs)),
                **({"result": SECRET} if is_made else {}),
            },
            resource.protect,
            {
                key: tuple(names[urn] for urn in urns if urn in names)
                for key, urns in resource.property_dependencies.items()
            },
        )
        for resource in graph.resources
        for is_made in [resource.urn in made]
    )


def _without_references(inputs: Props) -> Props:
    """Replace references to other resources by their ids or URNs, as engines do for a policy
    pack."""
    struct = struct_pb2.Struct()
    struct.update(inputs)
    plain: Props = json_format.MessageToDict(to_struct(from_struct(struct)))
    return plain


def _options(one: Shown) -> PolicyResourceOptions:
    return PolicyResourceOptions(one.protect, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])


def judge(stack: Sequence[Shown], allowed: Allowed, of: Iterable[str] | None = None) -> Judgement:
    """Run all policies. The policies about single resources judge only the resources whose names
    are in `of`, by default all resources."""
    broken: set[tuple[str, str]] = set()
    unknown: set[tuple[str, str]] = set()
    resources = _resources(stack)
    looked_at = [one for one in resources if of is None or one.name in of]
    for policy in policies(allowed):
        if isinstance(policy, ResourceValidationPolicy):
            for one in looked_at:
                args = ResourceValidationArgs(
                    one.resource_type, one.props, one.urn, one.name, one.opts, None
                )
                try:
                    policy.validate(args, _keep(broken, policy.name, one.name))
                except UnknownValueError:
                    unknown.add((policy.name, one.name))
        elif isinstance(policy, StackValidationPolicy):
            try:
                policy.validate(StackValidationArgs(resources), _keep(broken, policy.name))
            except UnknownValueError:
                unknown.add((policy.name, ""))
    return Judgement(frozenset(broken), frozenset(unknown))


def _keep(
    broken: set[tuple[str, str]], policy: str, name: str | None = None
) -> Callable[[str, str | None], None]:
    def report(message: str, urn: str | None = None) -> None:
        assert message
        broken.add((policy, name or (urn or "").rpartition("::")[2]))

    return report


def _resources(stack: Sequence[Shown]) -> list[PolicyResource]:
    found = [
        PolicyResource(
            one.type,
            unknown_checking_proxy(one.props),
            one.urn,
            one.name,
            _options(one),
            None,
            None,
            [],
            {},
        )
        for one in stack
    ]
    by_name = {one.name: one for one in found}
    for one, resource in zip(stack, found, strict=True):
        resource.property_dependencies = {
            key: [by_name[name] for name in names] for key, names in one.sources.items()
        }
    return found


def edited(stack: Stack, name: str, edit: Callable[[Props], object], **fields: Any) -> Stack:
    """Return the stack with edited properties and replaced `fields` of one resource."""

    def one(resource: Shown) -> Shown:
        if resource.name != name:
            return resource
        props = copy.deepcopy(resource.props)
        edit(props)
        return replace(resource, props=props, **fields)

    assert any(resource.name == name for resource in stack), name
    return tuple(one(resource) for resource in stack)


def stack_config(path: Path) -> dict[str, str]:
    """Return the config of a stack file as Pulumi passes it to a program."""
    values = yaml.safe_load(path.read_text())["config"]
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }
