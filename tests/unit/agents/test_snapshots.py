"""Snapshots are made by Kubernetes' API, and old ones go once a new one is there."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from agents import snapshots
from agents.reconciler.kubernetes import Api
from agents.snapshots import OF, REFUSED, NotReadyError, Snapshot, Snapshots, main, surplus, take
from components import conventions as c

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
PATH = "/apis/snapshot.storage.k8s.io/v1/namespaces/slurm/volumesnapshots"


def created(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Storage:
    """Kubernetes with a storage that makes snapshots; time goes by when somebody waits."""

    def __init__(
        self,
        *there: str,
        ready_after: float = 0,
        error: str = "",
        meanwhile: Callable[["Storage"], object] = lambda _: None,
    ) -> None:
        """It has some that are ready, the oldest first, and makes others in so many seconds."""
        self.now = NOON
        self.ready_after, self.error, self.meanwhile = ready_after, error, meanwhile
        self.has_them = True
        self.objects: dict[str, dict[str, Any]] = {
            name: {
                "metadata": {
                    "name": name,
                    "labels": {OF: "jail"},
                    "creationTimestamp": created(NOON - len(there) + index),
                },
                "status": {"readyToUse": True},
            }
            for index, name in enumerate(there)
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self.has_them:
            return httpx.Response(404, text="404 page not found\n")
        path = request.url.path
        assert path.startswith(PATH)
        if request.method == "POST":
            asked = json.loads(request.content)
            meta = asked["metadata"]
            claim = asked["spec"]["source"]["persistentVolumeClaimName"]
            assert meta["labels"] == {OF: claim}
            meta["creationTimestamp"] = created(self.now)
            self.objects[meta["name"]] = asked
            return httpx.Response(201, json=asked)
        if request.method == "DELETE":
            del self.objects[path.rpartition("/")[2]]
            return httpx.Response(200, json={})
        key, _, value = request.url.params["labelSelector"].partition("=")
        found = [one for one in self.objects.values() if self._is_of(one, key, value)]
        for one in found:
            self._goes_on(one)
        return httpx.Response(200, json={"items": found})

    @staticmethod
    def _is_of(one: dict[str, Any], key: str, value: str) -> bool:
        return bool(one["metadata"]["labels"].get(key) == value)

    def _goes_on(self, one: dict[str, Any]) -> None:
        if "spec" in one and self.now - NOON >= self.ready_after:
            one["status"] = {"readyToUse": True}
        elif "spec" in one and self.error:
            one["status"] = {"readyToUse": False, "error": {"message": self.error}}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile(self)

    def api(self) -> Api:
        return Api("http://kubernetes", lambda: "token", transport=httpx.MockTransport(self))

    def take(self, keep: int = 2, wait: float = 600) -> str:
        there = Snapshots(self.api(), "slurm")
        return take(there, "jail", "fast", keep, wait, lambda: self.now, self.sleep)


ENVIRONMENT: Mapping[str, str] = {"NAMESPACE": "slurm", "KEEP": "2", "WAIT": "0"}


def snapshot(name: str, *, ready: bool = True) -> Snapshot:
    return Snapshot(snapshots.Meta(name, name), snapshots.Status(readyToUse=ready))


def test_the_exit_code_and_the_label_are_those_that_the_graph_knows() -> None:
    assert REFUSED == c.SNAPSHOTS_REFUSED
    assert OF.startswith(f"{c.DOMAIN}/")


def test_one_is_asked_for_of_the_claim_and_the_class_and_the_oldest_goes() -> None:
    storage = Storage("jail-1", "jail-2")

    said = storage.take()

    assert set(storage.objects) == {"jail-2", "jail-20261123-120000"}
    asked = storage.objects["jail-20261123-120000"]
    assert (asked["apiVersion"], asked["kind"]) == (snapshots.API, "VolumeSnapshot")
    assert asked["spec"] == {
        "volumeSnapshotClassName": "fast",
        "source": {"persistentVolumeClaimName": "jail"},
    }
    assert said == "jail-20261123-120000 is ready; the claim has 2 snapshots"


def test_old_ones_stay_until_the_new_one_is_ready() -> None:
    seen: list[int] = []
    storage = Storage(
        "jail-1", "jail-2", ready_after=60, meanwhile=lambda s: seen.append(len(s.objects))
    )

    storage.take()

    assert set(seen) == {3}
    assert len(storage.objects) == 2


def test_one_that_does_not_get_ready_costs_no_other_and_its_reason_is_told() -> None:
    storage = Storage("jail-1", "jail-2", ready_after=10_000, error="no such\nclass")

    with pytest.raises(NotReadyError, match=r"jail-20261123-120000: no such class; .* 'fast'"):
        storage.take()

    assert {"jail-1", "jail-2"} <= set(storage.objects)


def test_one_that_somebody_deletes_meanwhile_is_missed() -> None:
    storage = Storage(ready_after=60, meanwhile=lambda s: s.objects.clear())

    with pytest.raises(NotReadyError, match="deleted"):
        storage.take()


@pytest.mark.parametrize(
    ("there", "keep", "gone"),
    [
        ({"a": True, "b": True, "c": True}, 2, ["a"]),
        ({"a": True, "b": True, "c": True}, 7, []),
        ({"a": True, "b": True, "c": True}, 1, ["a", "b"]),
        # What never got ready counts for nothing, and goes.
        ({"a": True, "b": False, "c": True}, 2, ["b"]),
        # What is younger is another run's.
        ({"b": True, "c": True, "d": False}, 2, []),
    ],
)
def test_so_many_that_are_ready_are_kept(
    there: dict[str, bool], keep: int, gone: list[str]
) -> None:
    found = [snapshot(name, ready=ready) for name, ready in sorted(there.items(), reverse=True)]

    assert surplus(found, "c", keep) == gone


def test_snapshots_of_others_are_left_alone() -> None:
    storage = Storage("jail-1", "jail-2")
    storage.objects["mine"] = {"metadata": {"name": "mine", "labels": {}}}
    storage.objects["state-1"] = {"metadata": {"name": "state-1", "labels": {OF: "state"}}}

    storage.take(keep=1)

    assert set(storage.objects) == {"mine", "state-1", "jail-20261123-120000"}


def test_each_claim_is_tried_whatever_became_of_the_one_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = Storage(ready_after=1e12)

    assert main(["jail=fast", "controller-state=slow"], ENVIRONMENT, storage.api) == 1

    said = capsys.readouterr().err.splitlines()
    assert [line.rsplit("-", 2)[0] for line in said] == ["error: jail", "error: controller-state"]


def test_a_cluster_without_volume_snapshots_is_refused_in_one_line_with_a_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = Storage()
    storage.has_them = False

    assert main(["--check", "jail=fast"], ENVIRONMENT, storage.api) == REFUSED

    (line,) = capsys.readouterr().err.splitlines()
    assert "install the snapshot controller" in line
    assert "remove snapshots" in line


def test_a_look_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    storage = Storage()

    assert main(["--check", "jail=fast"], ENVIRONMENT, storage.api) == 0

    assert not storage.objects
    assert capsys.readouterr().err == ""
