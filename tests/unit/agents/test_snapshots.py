"""Snapshots are created through Kubernetes; old ones are deleted once a new one is ready."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from agents import labels, snapshots
from agents.kubernetes import Api
from agents.snapshots import REFUSED, NotReadyError, Snapshot, Snapshots, main, surplus, take
from components import conventions as c

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
PATH = "/apis/snapshot.storage.k8s.io/v1/namespaces/slurm/volumesnapshots"


def created(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


class Storage:
    """Fake Kubernetes with storage that creates snapshots. The clock advances during sleep."""

    def __init__(
        self,
        *existing: str,
        ready_after: float = 0,
        error: str = "",
        meanwhile: Callable[["Storage"], object] = lambda _: None,
    ) -> None:
        """Start with ready snapshots: `existing`, oldest first. A new snapshot becomes ready
        `ready_after` seconds after it is created."""
        self.now = NOON
        self.ready_after, self.error, self.meanwhile = ready_after, error, meanwhile
        self.has_api = True
        self.objects: dict[str, dict[str, Any]] = {
            name: {
                "metadata": {
                    "name": name,
                    "labels": {labels.SNAPSHOT_OF: "jail"},
                    "creationTimestamp": created(NOON - len(existing) + index),
                },
                "status": {"readyToUse": True},
            }
            for index, name in enumerate(existing)
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self.has_api:
            return httpx.Response(404, text="404 page not found\n")
        path = request.url.path
        assert path.startswith(PATH)
        if request.method == "POST":
            asked = json.loads(request.content)
            meta = asked["metadata"]
            claim = asked["spec"]["source"]["persistentVolumeClaimName"]
            assert meta["labels"] == {labels.SNAPSHOT_OF: claim}
            meta["creationTimestamp"] = created(self.now)
            self.objects[meta["name"]] = asked
            return httpx.Response(201, json=asked)
        if request.method == "DELETE":
            del self.objects[path.rpartition("/")[2]]
            return httpx.Response(200, json={})
        key, _, value = request.url.params["labelSelector"].partition("=")
        found = [one for one in self.objects.values() if self._matches(one, key, value)]
        for one in found:
            self._advance(one)
        return httpx.Response(200, json={"items": found})

    @staticmethod
    def _matches(one: dict[str, Any], key: str, value: str) -> bool:
        return bool(one["metadata"]["labels"].get(key) == value)

    def _advance(self, one: dict[str, Any]) -> None:
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
        store = Snapshots(self.api(), "slurm")
        return take(store, "jail", "fast", keep, wait, lambda: self.now, self.sleep)


ENVIRONMENT: Mapping[str, str] = {"NAMESPACE": "slurm", "KEEP": "2", "WAIT": "0"}


def snapshot(name: str, *, ready: bool = True) -> Snapshot:
    return Snapshot(snapshots.Meta(name, name), snapshots.Status(readyToUse=ready))


def test_refusal_exits_with_the_code_that_fails_the_job() -> None:
    assert REFUSED == c.SNAPSHOTS_REFUSED


def test_new_snapshot_is_created_and_the_oldest_is_deleted() -> None:
    storage = Storage("jail-1", "jail-2")

    output = storage.take()

    assert set(storage.objects) == {"jail-2", "jail-20261123-120000"}
    asked = storage.objects["jail-20261123-120000"]
    assert (asked["apiVersion"], asked["kind"]) == (snapshots.API, "VolumeSnapshot")
    assert asked["spec"] == {
        "volumeSnapshotClassName": "fast",
        "source": {"persistentVolumeClaimName": "jail"},
    }
    assert output == (
        "VolumeSnapshot jail-20261123-120000 is ready; the PersistentVolumeClaim jail has 2 "
        "snapshots"
    )


def test_old_snapshots_stay_until_the_new_one_is_ready() -> None:
    counts: list[int] = []
    storage = Storage(
        "jail-1", "jail-2", ready_after=60, meanwhile=lambda s: counts.append(len(s.objects))
    )

    storage.take()

    assert set(counts) == {3}
    assert len(storage.objects) == 2


def test_failed_snapshot_is_reported_and_no_other_is_deleted() -> None:
    storage = Storage("jail-1", "jail-2", ready_after=10_000, error="no such\nclass")

    with pytest.raises(
        NotReadyError, match=r"jail-20261123-120000: not ready after .* s: no such class; .* 'fast'"
    ):
        storage.take()

    assert {"jail-1", "jail-2"} <= set(storage.objects)


def test_snapshot_that_was_deleted_meanwhile_is_an_error() -> None:
    storage = Storage(ready_after=60, meanwhile=lambda s: s.objects.clear())

    with pytest.raises(NotReadyError, match="deleted"):
        storage.take()


@pytest.mark.parametrize(
    ("existing", "keep", "gone"),
    [
        ({"a": True, "b": True, "c": True}, 2, ["a"]),
        ({"a": True, "b": True, "c": True}, 7, []),
        ({"a": True, "b": True, "c": True}, 1, ["a", "b"]),
        # A snapshot that never became ready does not count towards `keep`, and is deleted.
        ({"a": True, "b": False, "c": True}, 2, ["b"]),
        # Newer snapshots belong to another run.
        ({"b": True, "c": True, "d": False}, 2, []),
    ],
)
def test_newest_ready_snapshots_are_kept(
    existing: dict[str, bool], keep: int, gone: list[str]
) -> None:
    found = [snapshot(name, ready=ready) for name, ready in sorted(existing.items(), reverse=True)]

    assert surplus(found, "c", keep) == gone


def test_snapshots_of_others_are_left_alone() -> None:
    storage = Storage("jail-1", "jail-2")
    storage.objects["mine"] = {"metadata": {"name": "mine", "labels": {}}}
    storage.objects["state-1"] = {
        "metadata": {"name": "state-1", "labels": {labels.SNAPSHOT_OF: "state"}}
    }

    storage.take(keep=1)

    assert set(storage.objects) == {"mine", "state-1", "jail-20261123-120000"}


def test_failed_snapshot_does_not_prevent_snapshots_of_other_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = Storage(ready_after=1e12)

    assert main(["jail=fast", "controller-state=slow"], ENVIRONMENT, storage.api) == 1

    output = capsys.readouterr().err.splitlines()
    assert [line.rsplit("-", 2)[0] for line in output] == [
        f"error: VolumeSnapshot {claim}" for claim in ("jail", "controller-state")
    ]


def test_error_names_a_remedy_if_the_cluster_lacks_volume_snapshots(
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage = Storage()
    storage.has_api = False

    assert main(["--check", "jail=fast"], ENVIRONMENT, storage.api) == REFUSED

    (line,) = capsys.readouterr().err.splitlines()
    assert "install the snapshot controller" in line
    assert "remove 'snapshots'" in line


def test_option_check_creates_no_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    storage = Storage()

    assert main(["--check", "jail=fast"], ENVIRONMENT, storage.api) == 0

    assert not storage.objects
    assert capsys.readouterr().err == ""
