"""slurmd and slurmstepd themselves refuse what is not their asker's to ask for."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cluster.escape.daemons import FORBIDDEN, NO_ANSWER, RUNS, UNASKED, USER_ID_MISSING
from tests.cluster.escape.victim import NODE, OTHER, Victim, changes
from tests.support.cluster import Cluster

_VIOLATIONS = ("kill_job({job})", "abort_job({job})", "suspend_job({job})", "shutdown", "reboot")

Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="package")
def answers(cluster: Cluster, victim: Victim, shared: str) -> Callable[[str], Answers]:
    """By place what each daemon says to each request, and what has changed."""
    known: dict[str, Answers] = {}
    prefixes = {
        "login": "",
        "another node": "srun --nodelist=cpu-1 --mem=100 ",
        "the same node": f"srun --nodelist={NODE} --mem=100 ",
    }

    def ask(place: str) -> Answers:
        if place not in known:
            before = victim.state()
            where = "beside" if place == "the same node" else "elsewhere"
            command = f"python3 {shared}/daemons.py {NODE} {victim.job} {OTHER} {where}"
            said: Answers = json.loads(cluster.run(prefixes[place] + command))
            known[place] = {**said, "harm": {"": changes(before, victim.state())}}
        return known[place]

    return ask


@pytest.mark.parametrize("place", ["login", "another node", "the same node"])
def test_slurmd_does_nothing_for_who_is_not_slurmctld(
    cluster: Cluster, victim: Victim, answers: Callable[[str], Answers], place: str
) -> None:
    answer = answers(place)

    for request, code in answer["slurmd"].items():
        assert code == (NO_ANSWER if request in UNASKED else USER_ID_MISSING), request
    assert answer["harm"] == {"": ""}
    log = cluster.kubectl("logs", NODE, "-c", "slurmd")
    for violation in _VIOLATIONS:
        assert f"Security violation: {violation.format(job=victim.job)}" in log.replace(
            "violation, ", "violation: "
        )


def test_a_credential_is_of_no_use_for_another_message(answers: Callable[[str], Answers]) -> None:
    """Otherwise anyone who gets a credential of root's acts as root to every daemon."""
    said = answers("login")["any credential"]["to be told that it lives"]

    assert said == NO_ANSWER or re.fullmatch("message 8001: [1-9][0-9]*", said), said


def test_a_step_is_asked_by_its_user_alone(answers: Callable[[str], Answers]) -> None:
    """Slurm's own checks come after it has read what it is sent, of any length."""
    answer = answers("the same node")
    said = answer["slurmstepd"]

    assert said.pop("one's own state") == RUNS
    assert set(said.values()) == {FORBIDDEN}, said
    assert answer["harm"] == {"": ""}
