"""Several bridges elect the one that acts."""

import json
from typing import Any

import httpx
import pytest

from agents.bridge.lease import DURATION, GIVE_UP, Lease
from agents.kubernetes import Api, KubernetesError


class Cluster:
    """Keeps one lease, with versions, as the API server does."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.is_down = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("no way")
        if request.method == "DELETE":
            self.lease = None
            return httpx.Response(200, json={})
        if request.method == "GET":
            return httpx.Response(200, json=self.lease) if self.lease else httpx.Response(404)
        sent = json.loads(request.content)
        known = {"PUT": sent["metadata"].get("resourceVersion"), "POST": None}[request.method]
        if known != (self.lease and self.lease["metadata"]["resourceVersion"]):
            return httpx.Response(409, json={"message": "conflict"})
        self.version += 1
        self.lease = {
            **sent,
            "metadata": {**sent["metadata"], "resourceVersion": f"{self.version}"},
        }
        return httpx.Response(200, json=self.lease)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def time() -> Time:
    return Time()


def lease(cluster: Cluster, time: Time, holder: str) -> Lease:
    api = Api("http://k", lambda: "token", transport=httpx.MockTransport(cluster))
    return Lease(api, "slurm", "bridge", holder, time)


def test_one_of_two_bridges_acts(cluster: Cluster, time: Time) -> None:
    one, two = lease(cluster, time, "one"), lease(cluster, time, "two")
    for _ in range(20):
        one.renew()
        two.renew()
        assert (one.is_held, two.is_held) == (True, False)
        time.now += 3


def test_bridge_that_cannot_renew_stops_before_another_begins(cluster: Cluster, time: Time) -> None:
    one, two = lease(cluster, time, "one"), lease(cluster, time, "two")
    one.renew()
    two.renew()
    taken = []
    for _ in range(DURATION + 3):
        time.now += 1
        two.renew()
        assert not (one.is_held and two.is_held)
        taken.append((one.is_held, two.is_held))
    assert taken[-1] == (False, True)
    assert (False, False) in taken

    one.renew()
    assert not one.is_held


def test_bridge_without_the_api_server_stops_to_act(cluster: Cluster, time: Time) -> None:
    one = lease(cluster, time, "one")
    one.renew()
    cluster.is_down = True
    with pytest.raises(KubernetesError):
        one.renew()
    assert one.is_held

    time.now += GIVE_UP
    assert not one.is_held


def test_released_lease_is_free_at_once(cluster: Cluster, time: Time) -> None:
    one, two = lease(cluster, time, "one"), lease(cluster, time, "two")
    one.renew()
    two.renew()
    one.release()
    two.renew()
    assert (one.is_held, two.is_held) == (False, True)


def test_restarted_bridge_takes_its_own_lease(cluster: Cluster, time: Time) -> None:
    lease(cluster, time, "one").renew()
    again = lease(cluster, time, "one")
    again.renew()
    assert again.is_held
