"""The lease in the state's volume, which prevents two controllers from running at the same time."""

from collections.abc import Iterator

import pytest

from agents.backup.files import MARK
from components import conventions as c
from tests.support.slurmctld import Slurmctld
from tests.support.stack import alone
from tests.support.waiting import eventually

SCRIPT = f"{c.PROGRAMS}/slurmctld"
LEASE = f"{c.CONTROLLER_SPOOL}/lease"
SERVES = "Running as primary controller"


class Controllers:
    """Two controllers in one container. They share a port, so only one can serve at a time."""

    def __init__(self, slurmctld: Slurmctld) -> None:
        self._slurmctld = slurmctld

    def run(self, command: str) -> str:
        return self._slurmctld.run(command).strip()

    def start(self, name: str, expected: str) -> None:
        """Start a controller, and wait until it logs the expected text."""
        # Create the log first, because the shell in the background opens the log only later.
        self.run(
            f": >/tmp/{name}; POD_UID={name} {SCRIPT} >/tmp/{name} 2>&1 & echo $! >/tmp/{name}.pid"
        )
        self.logs(name, expected)

    def logs(self, name: str, expected: str) -> None:
        eventually(f"{name} logs '{expected}'", lambda: expected in self.run(f"cat /tmp/{name}"))

    def renewer(self, name: str) -> str:
        """Return the pid of the process that renews a controller's lease."""
        return self.run(f"pgrep --parent $(cat /tmp/{name}.pid) --full '^/bin/bash {SCRIPT}'")


@pytest.fixture
def controllers(slurmctld: Slurmctld) -> Iterator[Controllers]:
    slurmctld.install(alone())
    found = Controllers(slurmctld)
    found.run(f"rm -f {LEASE}")
    found.start("first", SERVES)
    found.start("second", "waiting: controller first holds the lease")
    yield found
    found.run("pkill -CONT -x slurmctld")


def test_blocked_controller_ends_before_another_takes_over(controllers: Controllers) -> None:
    """The test freezes the renewing process, as a write to an unresponsive volume would do."""
    renewer = controllers.renewer("first")
    controllers.run(f"kill -STOP {renewer}")

    controllers.logs("second", "taking over")
    # The first controller must have ended before the takeover, at least two seconds earlier.
    assert "lost the lease: stopped slurmctld" in controllers.run("cat /tmp/first")
    controllers.logs("second", SERVES)

    # A late renewal by the first controller must not change the second controller's lease.
    controllers.run(f"kill -CONT {renewer}")
    eventually("the renewer ends", lambda: not controllers.run(f"ps -o pid= {renewer} || true"))
    assert controllers.run(f"cat {LEASE}").startswith("second ")
    assert "lost the lease" not in controllers.run("cat /tmp/second")


def test_stopped_controller_releases_the_lease(controllers: Controllers) -> None:
    controllers.run("kill $(cat /tmp/first.pid)")

    controllers.logs("second", SERVES)
    assert "taking over" not in controllers.run("cat /tmp/second")


def test_controller_does_not_start_with_a_partly_restored_queue(slurmctld: Slurmctld) -> None:
    mark = f"{c.CONTROLLER_SPOOL}/{MARK}"
    slurmctld.run(f"touch {mark}")

    output = slurmctld.run(f"POD_UID=first {SCRIPT} 2>&1 || echo ended")

    slurmctld.run(f"rm {mark}")
    assert "the restore of the queue was interrupted" in output
    assert output.splitlines()[-1] == "ended"
