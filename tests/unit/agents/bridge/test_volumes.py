"""Volumes restrict the machines of their pods."""

from typing import Any

import pytest

from agents.bridge.podspec import Claim, PersistentVolume, StorageClass
from agents.bridge.volumes import SELECTED, Needs, VolumeError, Volumes, needs
from tests.unit.agents.bridge.things import meta, pod, read

DATA = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
ON_NODE_1 = [{"matchExpressions": [{"key": "host", "operator": "In", "values": ["node-1"]}]}]


def claim(phase: str = "Bound", name: str = "data", **more: Any) -> Claim:
    item = {
        "metadata": meta(name, **more),
        "spec": {"volumeName": "v" if phase == "Bound" else "", "storageClassName": "disk"},
        "status": {"phase": phase},
    }
    return read(item, Claim)


def volumes(*claims: Claim, mode: str = "WaitForFirstConsumer", **spec: Any) -> Volumes:
    volume = read({"metadata": meta("v"), "spec": spec}, PersistentVolume)
    disk = read({"metadata": meta("disk"), "volumeBindingMode": mode}, StorageClass)
    named = {("lab", one.metadata.name): one for one in claims}
    return Volumes(named, {"v": volume}, {"disk": disk})


def test_pod_without_volumes_needs_nothing() -> None:
    assert needs(pod(), volumes()) == Needs()


def test_volume_restricts_the_machines() -> None:
    local = {"required": {"nodeSelectorTerms": ON_NODE_1}}
    found = needs(pod(content=DATA), volumes(claim(), nodeAffinity=local))
    ((term,),) = found.terms
    assert term.match_expressions[0].values == ["node-1"]
    assert found.waiting == {}


def test_volume_of_all_machines_restricts_nothing() -> None:
    assert needs(pod(content=DATA), volumes(claim())) == Needs()


@pytest.mark.parametrize(("annotations", "chosen"), [({}, ""), ({SELECTED: "node-1"}, "node-1")])
def test_claim_waits_for_the_machine_of_its_pod(annotations: dict[str, str], chosen: str) -> None:
    found = needs(pod(content=DATA), volumes(claim("Pending", annotations=annotations)))
    assert found.waiting == {"data": chosen}


def test_ephemeral_volume_has_a_claim() -> None:
    content = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    found = needs(pod("train", content), volumes(claim("Pending", "train-scratch")))
    assert found.waiting == {"train-scratch": ""}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (volumes(), "'data': does not exist; create it"),
        (volumes(claim("Pending"), mode="Immediate"), "has no volume yet; see the events"),
        (volumes(claim("Lost")), "has no volume yet; see the events"),
        (Volumes({("lab", "data"): claim()}, {}, {}), "its volume 'v' does not exist"),
    ],
)
def test_missing_volume_is_a_reason_to_wait(known: Volumes, said: str) -> None:
    with pytest.raises(VolumeError, match=said):
        needs(pod(content=DATA), known)
