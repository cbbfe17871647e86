"""Decide on which machines the volumes of a pod can be mounted.

A volume can restrict its machines (`nodeAffinity` of the PersistentVolume), for example a local
disk, or a disk in one zone. If the StorageClass has the mode `WaitForFirstConsumer`, the volume is
created only when the pod has a machine. Source: https://kubernetes.io/docs/concepts/storage.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agents.bridge.podspec import Claim, PersistentVolume, Pod, StorageClass, Term

SELECTED: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim with the machine for which its volume is to be created."""


class VolumeError(Exception):
    """A volume of a pod is missing. The message is one line."""


@dataclass(frozen=True)
class Volumes:
    """All claims by namespace and name, and all volumes and StorageClasses by name."""

    claims: Mapping[tuple[str, str], Claim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]


@dataclass(frozen=True)
class Needs:
    """What the volumes of a pod need of its machine."""

    terms: tuple[Sequence[Term], ...] = ()
    """Selectors of machines. The machine must meet all of them."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Claims without a volume, each with the machine for which its volume is to be created, or ""
    if no machine has been chosen yet."""


def needs(pod: Pod, known: Volumes) -> Needs:
    """Return what the volumes of a pod need. Raises `VolumeError`."""
    terms: list[Sequence[Term]] = []
    waiting: dict[str, str] = {}
    for name in _claims(pod):
        claim = known.claims.get((pod.metadata.namespace, name))
        if claim is None:
            raise VolumeError(f"PersistentVolumeClaim '{name}': does not exist; create it")
        if claim.status.phase == "Bound":
            terms += _terms(claim, known)
        elif claim.status.phase == "Pending" and _waits_for_a_pod(claim, known):
            waiting[name] = claim.metadata.annotations.get(SELECTED, "")
        else:
            raise VolumeError(
                f"PersistentVolumeClaim '{name}': has no volume yet; see the events of the claim"
            )
    return Needs(tuple(terms), waiting)


def _claims(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral:
            # Kubernetes derives the name of the claim in this way.
            yield f"{pod.metadata.name}-{volume.name}"


def _terms(claim: Claim, known: Volumes) -> Iterator[Sequence[Term]]:
    volume = known.volumes.get(claim.spec.volume_name)
    if volume is None:
        raise VolumeError(
            f"PersistentVolumeClaim '{claim.metadata.name}': its volume "
            f"'{claim.spec.volume_name}' does not exist; restore the volume"
        )
    required = volume.spec.node_affinity.required
    if required:
        yield required.node_selector_terms


def _waits_for_a_pod(claim: Claim, known: Volumes) -> bool:
    found = known.classes.get(claim.spec.storage_class_name or "")
    return found is not None and found.volume_binding_mode == "WaitForFirstConsumer"
