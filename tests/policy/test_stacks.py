"""The program keeps every policy in every stack, but for what the stack names, with a reason."""

import re

import pytest
import yaml

from policy.allowed import matches, read
from policy.catalogue import NAMES
from tests.policy.conftest import STACKS, StackOf
from tests.policy.judge import judge, shown, stack_config
from tests.unit.components.graph import ROOT, record


@pytest.mark.parametrize("name", STACKS)
def test_no_stack_violates_a_policy_without_an_exception(stack_of: StackOf, name: str) -> None:
    stack, allowed = stack_of(name)
    said = judge(stack, allowed)

    assert said.broken == frozenset()
    assert said.unknown == frozenset()
    assert len(stack) > 100, "the whole program was judged"


def test_a_jail_on_a_server_of_ours_needs_the_exceptions_that_its_page_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = stack_config(ROOT / "Pulumi.cpu.yaml")
    config["slurmstack:jail"] = '{"server": {"machines": ["10.0.0.0/16"]}}'
    page = (ROOT / "docs/jail.md").read_text()
    (block,) = re.findall(r"```yaml\n(slurmstack:policy:.*?)```", page, re.DOTALL)
    named = yaml.safe_load(block)["slurmstack:policy"]["exceptions"]
    stack = shown(record(monkeypatch, config))

    said = judge(stack, read(config, "slurmstack", NAMES))

    assert said.broken == {(rule, name) for rule, names in named.items() for name in names}


@pytest.mark.parametrize("name", STACKS)
def test_every_exception_of_a_stack_is_needed(stack_of: StackOf, name: str) -> None:
    stack, allowed = stack_of(name)
    types = {one.name: one.type for one in stack}
    broken = judge(stack, allowed.model_copy(update={"exceptions": {}})).broken

    assert allowed.exceptions
    for rule, resources in allowed.exceptions.items():
        for pattern in resources:
            held_back = {n for r, n in broken if r == rule and matches(pattern, types[n], n)}
            assert held_back, f"{rule}: {pattern}"
