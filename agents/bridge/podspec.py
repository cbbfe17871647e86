"""Fields of pods and taints that the bridge reads from Kubernetes' API.

The names are those of the API, in Python's spelling. The decoder drops all other fields, because
they are most of an answer.
"""

from datetime import datetime

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


class _Affinity(_Fields, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()


class Spec(_Fields, frozen=True):
    containers: list[Container]
    init_containers: list[Container] = []
    resources: Resources = Resources()
    overhead: Quantities = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: _Affinity = _Affinity()
    tolerations: list[Toleration] = []
    scheduler_name: str = ""
    service_account_name: str = "default"


class Pod(_Fields, frozen=True):
    metadata: Meta
    spec: Spec


class Taint(_Fields, frozen=True):
    key: str
    effect: str
    value: str = ""
