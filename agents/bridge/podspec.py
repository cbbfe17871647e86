"""Fields of pods, machines and owners of pods that the bridge reads from Kubernetes' API.

The names are those of the API, in Python's spelling. The decoder drops all other fields, because
they are most of an answer.
"""

from datetime import datetime
from typing import Any

import msgspec

Quantities = dict[str, str | int | float]


class _Fields(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all types here. gc=False: the objects contain no reference cycles."""


class Owner(_Fields, frozen=True):
    kind: str
    name: str
    uid: str
    controller: bool = False


class Meta(_Fields, frozen=True):
    name: str
    uid: str
    resource_version: str
    creation_timestamp: datetime
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []
    finalizers: list[str] = []
    deletion_timestamp: datetime | None = None


# --- Pods ----------------------------------------------------------------------------------------


class Resources(_Fields, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}


class Container(_Fields, frozen=True):
    resources: Resources = Resources()
    restart_policy: str = ""


class Toleration(_Fields, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(_Fields, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class Term(_Fields, frozen=True):
    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class Terms(_Fields, frozen=True):
    node_selector_terms: list[Term]


class _NodeAffinity(_Fields, frozen=True):
    required: Terms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _PodAffinity(_Fields, frozen=True):
    required: list[msgspec.Raw] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=[]
    )


class _Affinity(_Fields, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _PodAffinity = _PodAffinity()
    pod_anti_affinity: _PodAffinity = _PodAffinity()


class _Spread(_Fields, frozen=True):
    when_unsatisfiable: str = ""


class _ClaimName(_Fields, frozen=True):
    claim_name: str


class Volume(_Fields, frozen=True):
    name: str
    persistent_volume_claim: _ClaimName | None = None
    ephemeral: dict[str, Any] | None = None


class Gate(_Fields, frozen=True):
    name: str


class Spec(_Fields, frozen=True):
    containers: list[Container]
    init_containers: list[Container] = []
    resources: Resources = Resources()
    overhead: Quantities = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: _Affinity = _Affinity()
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[_Spread] = []
    resource_claims: list[msgspec.Raw] = []
    scheduling_gates: list[Gate] = []
    scheduler_name: str = ""
    service_account_name: str = "default"
    volumes: list[Volume] = []


class Condition(_Fields, frozen=True):
    type: str
    status: str
    message: str = ""


class Status(_Fields, frozen=True):
    phase: str = ""
    conditions: list[Condition] = []


class Pod(_Fields, frozen=True):
    metadata: Meta
    spec: Spec
    status: Status = Status()


# --- Volumes -------------------------------------------------------------------------------------


class _ClaimSpec(_Fields, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None


class _ClaimStatus(_Fields, frozen=True):
    phase: str = ""


class Claim(_Fields, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class _VolumeAffinity(_Fields, frozen=True):
    required: Terms | None = None


class _VolumeSpec(_Fields, frozen=True):
    node_affinity: _VolumeAffinity = _VolumeAffinity()


class PersistentVolume(_Fields, frozen=True):
    metadata: Meta
    spec: _VolumeSpec = _VolumeSpec()


class StorageClass(_Fields, frozen=True):
    metadata: Meta
    volume_binding_mode: str = "Immediate"


# --- Machines ------------------------------------------------------------------------------------


class Taint(_Fields, frozen=True):
    key: str
    effect: str
    value: str = ""


class _MachineSpec(_Fields, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class _MachineStatus(_Fields, frozen=True):
    allocatable: Quantities = {}


class Machine(_Fields, frozen=True):
    """A node of Kubernetes."""

    metadata: Meta
    spec: _MachineSpec = _MachineSpec()
    status: _MachineStatus = _MachineStatus()
