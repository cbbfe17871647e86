"""The kernel refuses all attempts to leave the jail or to reach another user from inside it."""

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
def test_attempt_is_refused(outcomes: Callable[[str], Outcomes], place: str, name: str) -> None:
    assert outcomes(place)[name] in ATTEMPTS[name].refusals[place], name


@pytest.mark.parametrize("way", LIKE_A_JOB)
def test_refusals_are_the_same_for_every_way_into_a_job(
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
def test_attempts_change_nothing(outcomes: Callable[[str], Outcomes], place: str) -> None:
    assert outcomes(place)["harm"] == ""


@pytest.mark.parametrize(("path", "pod", "container"), SECRETS)
def test_unreadable_files_exist(cluster: Cluster, path: str, pod: str, container: str) -> None:
    """Without these files, the tests that users cannot read them would prove nothing."""
    name = cluster.controller() if pod == "controller" else pod

    assert in_shell(cluster, name, container, f"head -c1 {path} | wc -c").strip() == "1"
