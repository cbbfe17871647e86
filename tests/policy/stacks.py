"""The stack files whose resources the tests of the policy pack judge."""

from collections.abc import Callable

from policy.allowed import Allowed
from tests.policy.judge import Stack
from tests.support.stack import FILES

STACKS = [path.name.split(".")[1] for path in FILES]

StackOf = Callable[[str], tuple[Stack, Allowed]]
"""Resources that the program requests for a stack file, and what that file allows."""
