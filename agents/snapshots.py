"""Make a VolumeSnapshot of each PersistentVolumeClaim (*claim*), and delete old snapshots.

`python3 -m agents.snapshots [--check] CLAIM=CLASS …`: CLASS is a VolumeSnapshotClass. The program
deletes older snapshots only after the storage reports the new one as ready. With `--check`, the
program makes no snapshot, and only checks that the cluster supports VolumeSnapshots.

Environment variables: NAMESPACE, KEEP (number of snapshots to keep for each claim), WAIT (seconds
until a snapshot must be ready). The exit code is 3 if the cluster does not support VolumeSnapshots,
and 1 after any other failure. After a failure, the last line is the reason.

See https://kubernetes.io/docs/concepts/storage/volume-snapshots/ for the objects.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec

from agents import labels
from agents.kubernetes import Api, KubernetesError, in_cluster
from agents.say import fail

API = "snapshot.storage.k8s.io/v1"
PAUSE = 5
"""Seconds between two requests for the snapshot's state."""
REFUSED = 3


class Meta(msgspec.Struct):
    name: str
    creationTimestamp: str = ""  # noqa: N815  # the API's own name


class Failure(msgspec.Struct):
    message: str = ""


class Status(msgspec.Struct):
    readyToUse: bool = False  # noqa: N815
    error: Failure | None = None


class Snapshot(msgspec.Struct):
    """VolumeSnapshot, with the fields that this program reads."""

    metadata: Meta
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.status is not None and self.status.readyToUse

    @property
    def error(self) -> str:
        """Return one line that says why the snapshot is not ready."""
        error = self.status.error if self.status else None
        return " ".join(error.message.split()) if error else "the storage reports no error"


class NotReadyError(Exception):
    """A snapshot failed. The message is one line for people."""


def named(claim: str, moment: datetime) -> str:
    return f"{claim}-{moment:%Y%m%d-%H%M%S}"


def body(claim: str, snapshot_class: str, moment: datetime) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "VolumeSnapshot",
        "metadata": {"name": named(claim, moment), "labels": {labels.SNAPSHOT_OF: claim}},
        "spec": {
            "volumeSnapshotClassName": snapshot_class,
            "source": {"persistentVolumeClaimName": claim},
        },
    }


def surplus(snapshots: Iterable[Snapshot], newest: str, keep: int) -> list[str]:
    """Return the names of snapshots to delete after `newest` is ready.

    `newest` is the snapshot that this run made. Of `newest` and the snapshots before it, the latest
    `keep` that are ready stay; the others are deleted, and so are snapshots that never became
    ready. Snapshots after `newest` stay, because another run may be making them.
    """
    oldest_first = sorted(snapshots, key=lambda one: one.metadata.creationTimestamp)
    names = [one.metadata.name for one in oldest_first]
    before = oldest_first[: names.index(newest) + 1]
    kept = [one.metadata.name for one in before if one.is_ready][-keep:]
    return [one.metadata.name for one in before if one.metadata.name not in kept]


class Snapshots:
    """The snapshots of one namespace. All methods raise `KubernetesError`."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/apis/{API}/namespaces/{namespace}/volumesnapshots"

    def of(self, claim: str) -> list[Snapshot]:
        return list(
            self._api.items(self._path, Snapshot, labelSelector=f"{labels.SNAPSHOT_OF}={claim}")
        )

    def make(self, wanted: dict[str, Any]) -> None:
        self._api.ask("POST", self._path, wanted)

    def delete(self, name: str) -> None:
        self._api.ask("DELETE", f"{self._path}/{name}")


def take(
    snapshots: Snapshots,
    claim: str,
    snapshot_class: str,
    keep: int,
    wait: float,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Make a snapshot of a claim, and return a line about it. Raises `KubernetesError` and
    `NotReadyError`."""
    began = clock()
    wanted = body(claim, snapshot_class, datetime.fromtimestamp(began, UTC))
    name = wanted["metadata"]["name"]
    snapshots.make(wanted)
    while True:
        there = snapshots.of(claim)
        made = next((one for one in there if one.metadata.name == name), None)
        if made is None:
            raise NotReadyError(
                f"VolumeSnapshot {name}: it was deleted before it was ready; no action "
                "needed: the next run makes a new snapshot"
            )
        if made.is_ready:
            break
        if clock() - began >= wait:
            raise NotReadyError(
                f"VolumeSnapshot {name}: not ready after {wait:g} s: {made.error}; check that "
                f"the VolumeSnapshotClass '{snapshot_class}' names the CSI driver of the "
                "volume; older snapshots are kept"
            )
        sleep(PAUSE)
    gone = surplus(there, name, keep)
    for one in gone:
        snapshots.delete(one)
    return (
        f"VolumeSnapshot {name} is ready; the PersistentVolumeClaim {claim} has "
        f"{len(there) - len(gone)} snapshots"
    )


def main(
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    connect: Callable[[], Api] = in_cluster,
) -> int:
    options = _parser().parse_args(arguments)
    failed = 0
    try:
        snapshots = Snapshots(connect(), environment["NAMESPACE"])
        if options.check:
            snapshots.of("none")
            print("this cluster supports VolumeSnapshots")
            return 0
        keep, wait = int(environment["KEEP"]), float(environment["WAIT"])
        for claim, snapshot_class in options.claims:
            try:
                print(take(snapshots, claim, snapshot_class, keep, wait), flush=True)
            except NotReadyError as error:
                failed = 1
                fail(str(error))
    except KubernetesError as error:
        if options.check and error.status == httpx.codes.NOT_FOUND:
            fail(
                f"snapshots: this cluster does not support VolumeSnapshots ({API}); install "
                "the snapshot controller with its CRDs, or remove 'snapshots' from the "
                "stack's config"
            )
            return REFUSED
        fail(str(error))
        return 1
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agents.snapshots", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only check that the cluster supports VolumeSnapshots"
    )
    parser.add_argument("claims", nargs="+", metavar="CLAIM=CLASS", type=_pair)
    return parser


def _pair(text: str) -> tuple[str, str]:
    claim, _, snapshot_class = text.partition("=")
    return claim, snapshot_class


if __name__ == "__main__":
    sys.exit(main())
