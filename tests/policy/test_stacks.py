"""The program keeps every policy in every stack, but for what the stack names, with a reason."""

import pytest

from policy.allowed import matches
from tests.policy.conftest import STACKS, StackOf
from tests.policy.judge import judge


@pytest.mark.parametrize("name", STACKS)
def test_no_stack_violates_a_policy_without_an_exception(stack_of: StackOf, name: str) -> None:
    stack, allowed = stack_of(name)
    said = judge(stack, allowed)

    assert said.broken == frozenset()
    assert said.unknown == frozenset()
    assert len(stack) > 100, "the whole program was judged"


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
