"""Two simultaneous stacks that the tests of this folder share."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.two_stacks.choices import SecondOn, operator_kinds, write_second_stack
from tests.support.cluster import Cluster, Deployed, write_test_stack
from tests.support.commands import execute


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """The first stack, on one Kubernetes node. The pod of its second controller stays pending."""
    with deployed(write_test_stack("single", nodes=1)) as stack:
        yield stack


@pytest.fixture(scope="package")
def second_on(deployed: Deployed) -> Iterator[SecondOn]:
    """Return a function that deploys the second stack on a number of Kubernetes nodes.

    The stack may be running, stopped or removed before the call.
    """
    stack = write_second_stack()
    with ExitStack() as stacks:

        def on(nodes: int) -> Cluster:
            if not stack.stack_file.exists():
                write_second_stack()
            stack.edit(lambda values: values["cluster"].update(nodes=nodes))
            # End open sessions, because a login node that moves to another machine waits for them.
            stack.log_out()
            # Install the Prometheus Operator's kinds first, as on clusters with an operator.
            execute([sys.executable, "-m", "local", "up", "--stack", stack.stack], timeout=1200)
            files = [f"--filename={file}" for file in operator_kinds()]
            stack.kubectl("apply", "--server-side", *files)
            stacks.enter_context(deployed(stack))
            return stack

        yield on
