"""The stack files whose resources the tests check with the policy pack."""

from collections.abc import Callable

from policy.allowed import Allowed
from tests.policy.judge import Stack
from tests.support.stack import FILES

STACKS = [path.name.split(".")[1] for path in FILES]

StackOf = Callable[[str], tuple[Stack, Allowed]]
"""Function that takes the name of a stack file, and returns the resources that the program
registers, and the exceptions to policy rules that the file allows."""
