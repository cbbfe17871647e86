"""Snapshots through a real API server with the stack's rights, on simulated storage."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents import labels
from agents.kubernetes import Api
from agents.snapshots import REFUSED, Snapshots, main, take
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.graph import record
from tests.support.stack import config
from tests.support.waiting import eventually

KIND = "volumesnapshots.snapshot.storage.k8s.io"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": KIND,
        # Kubernetes refuses a definition in one of its own groups without this annotation.
        "annotations": {"api-approved.kubernetes.io": "https://kubernetes.io"},
    },
    "spec": {
        "group": "snapshot.storage.k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "VolumeSnapshot",
            "plural": "volumesnapshots",
            "singular": "volumesnapshot",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": ANYTHING, "status": ANYTHING},
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    """A client of the API server with the account of the CronJob's pod."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        graph = record(monkeypatch, config(lambda v: v.update(snapshots={"jail": "fast"})))
    made = [graph.one(f"snapshots-{part}").inputs for part in ("account", "role", "rights")]
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl("apply", "-f", "-", stdin=items)
    try:
        yield cluster.as_account("snapshots")
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=items)


@pytest.fixture
def snapshots(cluster: Cluster, api: Api) -> Iterator[Snapshots]:
    """A client for snapshots, on a cluster that has the kind VolumeSnapshot."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(DEFINITION))
    try:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}")
        # Wait, because the API server serves the kind VolumeSnapshot only after a moment.
        eventually("the API server serves the kind", lambda: look(api) == 0)
        yield Snapshots(api, NAMESPACE)
    finally:
        cluster.kubectl("delete", "crd", KIND)


def look(api: Api) -> int:
    return main(["--check", "jail=fast"], {"NAMESPACE": NAMESPACE}, lambda: api)


def is_ready(cluster: Cluster, name: str) -> None:
    status: dict[str, Any] = {"status": {"readyToUse": True}}
    cluster.kubectl(
        *("patch", KIND, name, "--subresource=status", "--type=merge"),
        f"--patch={json.dumps(status)}",
    )


def test_missing_snapshot_kind_has_its_own_exit_code(api: Api) -> None:
    assert look(api) == REFUSED


def test_newest_snapshots_and_those_of_other_tools_are_kept(
    cluster: Cluster, snapshots: Snapshots
) -> None:
    foreign = {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": "mine"},
        "spec": {},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(foreign))
    moments = iter(range(1_800_000_000, 1_800_000_100))

    def storage(_seconds: float) -> None:
        for one in snapshots.of("jail"):
            is_ready(cluster, one.metadata.name)

    for _ in range(3):
        take(snapshots, "jail", "fast", 2, 60, lambda: next(moments), storage)

    ours = {one["metadata"]["name"]: one for one in cluster.objects(KIND, labels.SNAPSHOT_OF)}
    assert len(ours) == 2
    assert "jail-20270115-080000" not in ours, "the oldest one is removed"
    assert {one["spec"]["source"]["persistentVolumeClaimName"] for one in ours.values()} == {"jail"}
    assert "mine" in {one["metadata"]["name"] for one in cluster.objects(KIND)}
