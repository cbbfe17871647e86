"""The kernel refuses all attempts in the jail to leave the jail or to reach another user."""

from collections.abc import Callable

import pytest

from tests.cluster.escape import places
from tests.cluster.escape.attempts import ATTEMPTS, SECRETS
from tests.cluster.escape.places import LIKE_A_JOB
from tests.cluster.escape.victim import Outcomes, in_shell
from tests.support.cluster import Cluster

PLACES = ("job", "login", "root")


@pytest.mark.parametrize(
    ("place", "name"),
    [(place, name) for place in PLACES for name, a in ATTEMPTS.items() if place in a.refusals],
)
def test_attempt_to_leave_the_jail_or_harm_others_is_refused(
    outcomes: Callable[[str], Outcomes], place: str, name: str
) -> None:
    assert outcomes(place)[name] in ATTEMPTS[name].refusals[place], name


@pytest.mark.parametrize("way", LIKE_A_JOB)
def test_every_way_into_a_job_gives_the_same_refusals(
    outcomes: Callable[[str], Outcomes], way: str
) -> None:
    results, otherwise = dict(outcomes(way)), places.REFUSED_OTHERWISE.get(way, {})

    assert results.pop("harm") == ""
    assert results.keys() == {name for name, a in ATTEMPTS.items() if "job" in a.refusals}
    assert {
        name: outcome
        for name, outcome in results.items()
        if outcome not in (*ATTEMPTS[name].refusals["job"], otherwise.get(name))
    } == {}


@pytest.mark.parametrize("place", PLACES)
def test_refused_attempts_change_nothing(outcomes: Callable[[str], Outcomes], place: str) -> None:
    assert outcomes(place)["harm"] == ""


@pytest.mark.parametrize(("path", "pod", "container"), SECRETS)
def test_protected_files_exist_in_their_pods(
    cluster: Cluster, path: str, pod: str, container: str
) -> None:
    """If these files were missing, a failed attempt to read them would prove nothing."""
    name = cluster.controller() if pod == "controller" else pod

    assert in_shell(cluster, name, container, f"head -c1 {path} | wc -c").strip() == "1"
