"""slurmd and slurmstepd refuse requests that a user may not make."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cluster.escape.daemons import FORBIDDEN, NO_ANSWER, RUNS, UNANSWERED, USER_ID_MISSING
from tests.cluster.escape.victim import NODE, OTHER, Victim, changes
from tests.support.cluster import Cluster

_VIOLATIONS = ("kill_job({job})", "abort_job({job})", "suspend_job({job})", "shutdown", "reboot")

Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="package")
def answers(cluster: Cluster, victim: Victim, shared: str) -> Callable[[str], Answers]:
    """Return a function that returns the daemons' answers to requests from a place."""
    cache: dict[str, Answers] = {}
    prefixes = {
        "login": "",
        "another node": "srun --nodelist=cpu-1 --mem=100 ",
        "the same node": f"srun --nodelist={NODE} --mem=100 ",
    }

    def ask(place: str) -> Answers:
        if place not in cache:
            before = victim.state()
            where = "beside" if place == "the same node" else "elsewhere"
            command = f"python3 {shared}/daemons.py {NODE} {victim.job} {OTHER} {where}"
            output: Answers = json.loads(cluster.run(prefixes[place] + command))
            cache[place] = {**output, "harm": {"": changes(before, victim.state())}}
        return cache[place]

    return ask


@pytest.mark.parametrize("place", ["login", "another node", "the same node"])
def test_slurmd_obeys_only_slurmctld(
    cluster: Cluster, victim: Victim, answers: Callable[[str], Answers], place: str
) -> None:
    answer = answers(place)

    for request, code in answer["slurmd"].items():
        assert code == (NO_ANSWER if request in UNANSWERED else USER_ID_MISSING), request
    assert answer["harm"] == {"": ""}
    log = cluster.kubectl("logs", NODE, "-c", "slurmd")
    for violation in _VIOLATIONS:
        assert f"Security violation: {violation.format(job=victim.job)}" in log.replace(
            "violation, ", "violation: "
        )


def test_slurmd_refuses_a_credential_made_for_another_message(
    answers: Callable[[str], Answers],
) -> None:
    """If slurmd accepted it, a user with one credential of root could command all daemons."""
    outcome = answers("login")["any credential"]["to ping slurmd"]

    assert outcome == NO_ANSWER or re.fullmatch("message 8001: [1-9][0-9]*", outcome), outcome


def test_only_the_user_of_a_step_can_contact_its_slurmstepd(
    answers: Callable[[str], Answers],
) -> None:
    """The kernel must refuse other users' connections to the socket.

    Slurm itself checks the sender only after it has read the whole request, of any length.
    """
    answer = answers("the same node")
    outcome = answer["slurmstepd"]

    assert outcome.pop("to read one's own state") == RUNS
    assert set(outcome.values()) == {FORBIDDEN}, outcome
    assert answer["harm"] == {"": ""}
