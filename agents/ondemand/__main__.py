"""`python3 -m agents.ondemand [--dry-run]`: start and stop the pods of on-demand nodes.

Until SIGTERM, the agent makes passes over all nodes: when slurmctld calls it (`PORT`), every second
while a node starts or goes to sleep, and otherwise every five seconds. If a pass took more than
half a second, the agent pauses as long as the pass took, but at most five seconds. With --dry-run,
it makes one pass, prints what it would do, and changes nothing. The exit code is then

    0  there is nothing to do
    1  there is something to do
    2  Slurm, Kubernetes or the settings cannot be read

Environment variables:

    REST_URL   URL of slurmrestd
    JWT_KEY    file with slurmctld's key
    WANTED     file with the settings
    NAMESPACE  namespace of the stack
    PORT       port on which slurmctld's programs call the agent
"""

import argparse
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from agents.kubernetes import Api, KubernetesError, in_cluster
from agents.ondemand import wanted
from agents.ondemand.carry import Carried, Carrier
from agents.ondemand.memory import Memory
from agents.ondemand.observed import observe
from agents.ondemand.plan import Plan, plan
from agents.say import fail, say
from agents.slurm import Client, SlurmError, from_key
from agents.wanted import WantedError

USER = "slurm"
"""SlurmUser may change all nodes."""
QUIET = 5.0
"""Seconds until the next pass if nothing changes. If a call from slurmctld does not arrive, a node
starts or stops at most this much later."""
BUSY = 1.0
"""Seconds until the next pass while nodes start or go to sleep."""
PROBLEMS = (KubernetesError, SlurmError, WantedError)


class Agent:
    def __init__(self, slurm: Client, api: Api, namespace: str, wanted_file: Path) -> None:
        self._slurm = slurm
        self._api = api
        self._namespace = namespace
        self._wanted_file = wanted_file
        self._carrier = Carrier(slurm, api, namespace)
        self._memory = Memory()
        self._looked: float | None = None
        """Unix time of the last plan."""
        self._changing: set[str] = set()
        """Nodes that were starting or stopping at the last pass."""

    def look(self, now: float, *, dry_run: bool = False) -> tuple[Plan, Carried]:
        """Make one pass. Return the plan, and the results of its actions.

        Raises an error of `PROBLEMS` if the pass is incomplete.
        """
        asked = wanted.read(self._wanted_file)
        try:
            observed = observe(self._slurm, self._api, self._namespace)
        except PROBLEMS:
            self._memory = self._memory.after_outage()
            raise
        made = plan(observed, asked, int(now), self._memory.later(self._missed(now)))
        self._memory, self._looked = made.memory, now
        if dry_run:
            return made, Carried()
        carried = self._carrier.carry(made.actions, observed.templates)
        changed, self._changing = self._changing.difference(made.changing), set(made.changing)
        if changed:
            self._carrier.save(min(changed))
        return made, carried

    def _missed(self, now: float) -> float:
        """Return the seconds since the last plan that must not count towards nodes' time limits.

        A long pass usually means that slurmctld did not answer during the pass. No node could
        register in that time.
        """
        return 0.0 if self._looked is None else max(0.0, now - self._looked - 2 * QUIET)


class _Bell(socketserver.TCPServer):
    """Listens for slurmctld's calls. Each connection starts a pass, whatever its content."""

    allow_reuse_address = True

    def __init__(self, port: int, ring: threading.Event) -> None:
        self._ring = ring
        super().__init__(("", port), socketserver.BaseRequestHandler)

    def finish_request(self, *_: object) -> None:
        self._ring.set()


def main(arguments: Sequence[str] | None = None, agent: Agent | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m agents.ondemand",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check all on-demand nodes once, show the planned actions, and change nothing",
    )
    options = parser.parse_args(arguments)
    try:
        agent = agent or _agent()
    except KubernetesError as error:
        fail(str(error))
        return 2
    return _once(agent) if options.dry_run else _again_and_again(agent, int(os.environ["PORT"]))


def _agent() -> Agent:
    slurm = Client(os.environ["REST_URL"], from_key(Path(os.environ["JWT_KEY"]), USER))
    return Agent(slurm, in_cluster(), os.environ["NAMESPACE"], Path(os.environ["WANTED"]))


def _once(agent: Agent) -> int:
    try:
        made, _ = agent.look(time.time(), dry_run=True)
    except PROBLEMS as error:
        fail(
            f"the check of the on-demand nodes did not finish: {error}; correct the cause, then "
            "run this command again"
        )
        return 2
    for action in made.actions:
        print(f"planned: {action}")
    print(
        f"on-demand nodes: {made.awake} awake, {len(made.changing)} starting or stopping, "
        f"{made.asleep} asleep"
    )
    return 1 if made.actions else 0


def _again_and_again(agent: Agent, port: int) -> int:
    ring, stop = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        ring.set()

    signal.signal(signal.SIGTERM, end)
    with _Bell(port, ring) as bell:
        threading.Thread(target=bell.serve_forever, daemon=True).start()
        while not stop.is_set():
            begun = time.monotonic()
            ring.clear()
            interval = _look(agent)
            stop.wait(pause(time.monotonic() - begun))
            ring.wait(max(0.0, begun + interval - time.monotonic()))
        bell.shutdown()
    return 0


def pause(took: float) -> float:
    """Return the length of the pause after a pass, in seconds. A call from slurmctld during the
    pause starts a pass only after the pause.

    The pause is as long as the pass, so that slurmctld also has time for other requests. It is not
    longer than `QUIET`, because a longer pass probably waited for an unavailable service.
    """
    return max(BUSY - took, min(took, QUIET))


def _look(agent: Agent) -> float:
    """Make one pass. Return the seconds from the start of this pass to the start of the next."""
    try:
        made, carried = agent.look(time.time())
    except PROBLEMS as error:
        say(
            "error",
            f"the check of the on-demand nodes did not finish: {error}; the next check tries again",
        )
        return QUIET
    for action in carried.done:
        say("info", f"done: {action}")
    for note in carried.notes:
        say("error", note)
    return QUIET if made.is_settled else BUSY


if __name__ == "__main__":
    sys.exit(main())
