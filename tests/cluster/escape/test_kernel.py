"""The kernel refuses all that would lead out of the jail, or to another user, from inside it."""

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
def test_an_attempt_is_refused(outcomes: Callable[[str], Outcomes], place: str, name: str) -> None:
    assert outcomes(place)[name] in ATTEMPTS[name].refusals[place], name


@pytest.mark.parametrize("way", LIKE_A_JOB)
def test_whatever_way_leads_into_a_job_the_refusals_are_the_same(
    outcomes: Callable[[str], Outcomes], way: str
) -> None:
    found, otherwise = dict(outcomes(way)), places.REFUSED_OTHERWISE.get(way, {})

    assert found.pop("harm") == ""
    assert found.keys() == {name for name, a in ATTEMPTS.items() if "job" in a.refusals}
    assert {
        name: outcome
        for name, outcome in found.items()
        if outcome not in (*ATTEMPTS[name].refusals["job"], otherwise.get(name))
    } == {}


@pytest.mark.parametrize("place", PLACES)
def test_all_attempts_together_have_harmed_nobody(
    outcomes: Callable[[str], Outcomes], place: str
) -> None:
    assert outcomes(place)["harm"] == ""


@pytest.mark.parametrize(("path", "pod", "container"), SECRETS)
def test_what_nobody_could_read_is_there_all_the_same(
    cluster: Cluster, path: str, pod: str, container: str
) -> None:
    """So that it is not by chance that users find nothing."""
    name = cluster.controller() if pod == "controller" else pod

    assert in_shell(cluster, name, container, f"head -c1 {path} | wc -c").strip() == "1"
