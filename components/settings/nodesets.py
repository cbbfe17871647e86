"""Settings of nodesets: workers of one kind, and their pods."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, JsonValue, model_validator

from components.conventions import FEATURE_ON_DEMAND, FEATURE_PODS, MAX_REPLICAS, node_names
from components.settings.health import GPU_COUNT, Choices, refuse_choices
from components.settings.isolation import Isolation
from components.settings.ondemand import OnDemand
from components.settings.placement import Toleration
from components.settings.pods import Pod, ProcessLimits
from components.settings.types import (
    DnsLabel,
    GpuType,
    LabelKey,
    MemoryMiB,
    MigProfile,
    Model,
    NodesetName,
    Number,
    ObjectName,
    ParameterName,
    ResourceName,
    Scalar,
    Seconds,
    SelectedValue,
    at_least,
    cross_field,
    duplicates,
    known_names,
)
from components.settings.volumes import Volume, each_its_own

NVIDIA: Final = "nvidia.com"
AMD: Final = "amd.com"
"""Domains of the vendors' GPU resources in Kubernetes."""
INFINIBAND: Final = "infiniband"
"""Feature of nodesets whose nodes have InfiniBand. The nodes then check their InfiniBand ports."""
_LEAST_MEMORY: Final = 128
"""Minimum memory of a node in MiB: its daemons do not start with less."""
_MIG_SHARES: Final = 7
"""Largest number of compute slices of a GPU; a profile such as `3g.40gb` begins with its number of
slices (source: NVIDIA, MIG user guide)."""
_OWNED_PARAMETERS: Mapping[str, str] = {
    "feature": "use features",
    "features": "use features",
    "gres": "use gpus",
    "nodeaddr": "remove it: the node's pod reports its own address",
    "nodehostname": "remove it: the stack derives nodes' names from the nodeset's name",
    "nodename": "remove it: the stack derives nodes' names from the nodeset's name",
    "port": "remove it: all nodes use the same slurmd port",
    "state": "use `scontrol update`",
}
"""Node parameters, in lower case, that the stack derives from other settings, and what to do
instead."""


def refuse_owned(parameters: Mapping[str, Any], owned: Mapping[str, str]) -> None:
    """Refuse duplicate parameters, and those that the stack derives from other settings."""
    for name, value in parameters.items():
        if name.lower() in owned:
            raise cross_field(f"parameters.{name}", f"{value}: is reserved; {owned[name.lower()]}")
    for name in duplicates(name.lower() for name in parameters):
        raise cross_field("parameters", f"'{name}' is set twice; keep one")


class Gpus(Model):
    """GPUs of a node, which Slurm allocates as gres."""

    type: GpuType
    """GPU type for `--gres=gpu:<type>:1`, such as 'h100'."""
    count: Annotated[int, Field(ge=1, le=64), Number]
    """Number of GPUs of a node."""
    resource: ResourceName = "nvidia.com/gpu"
    """Name of the GPU's resource in Kubernetes."""
    shards: Annotated[int, Field(ge=1, le=256), Number] | None = None
    """Number of shards of each GPU, for `--gres=shard:1`."""
    mig: dict[MigProfile, Annotated[int, Field(ge=1, le=448), Number]] = {}
    """Number of a node's slices for each MIG profile, such as `1g.10gb: 7`. Jobs then get slices
    instead of whole GPUs."""

    @model_validator(mode="after")
    def _shards_are_of_whole_gpus(self) -> Self:
        if self.mig and self.shards:
            raise cross_field(
                "shards", f"{self.shards}: GPUs with MIG slices have no shards; remove gpus.shards"
            )
        return self

    @model_validator(mode="after")
    def _slices_fit_the_gpus(self) -> Self:
        shares = sum(int(profile[0]) * number for profile, number in self.mig.items())
        most = _MIG_SHARES * self.count
        if shares > most:
            mig = ", ".join(f"{profile}: {number}" for profile, number in self.mig.items())
            raise cross_field(
                "mig",
                f"{mig}: these profiles need {shares} compute slices; expected at most {most}, "
                f"because gpus.count is {self.count} and each GPU has {_MIG_SHARES}; lower the "
                "numbers of slices",
            )
        return self

    @model_validator(mode="after")
    def _slices_are_nvidias(self) -> Self:
        if self.mig and self.vendor() == AMD:
            raise cross_field("mig", f"GPUs of {AMD} do not support MIG; remove gpus.mig")
        return self

    def number(self) -> int:
        """Return the number of a node's GPUs, or of its MIG slices."""
        return sum(self.mig.values()) or self.count

    def vendor(self) -> str:
        """Return the vendor's domain: the constant `NVIDIA` or `AMD`, or another domain."""
        return self.resource.partition("/")[0]

    def kubernetes_resources(self) -> dict[str, int]:
        """Return the resources that a node's pod requests from the device plugin."""
        slices = {f"{self.vendor()}/mig-{profile}": n for profile, n in sorted(self.mig.items())}
        return slices or {self.resource: self.count}


class Roll(Model):
    """How pods of a nodeset are replaced after an edit. Each pod is replaced when the jobs of its
    node have ended."""

    share: Annotated[float, Field(gt=0, le=1), Number] = 0.2
    """Maximum fraction of the nodeset's nodes that an update takes out of service at a time, at
    least one node."""
    in_maintenance: bool = False
    """Update only nodes that are in a maintenance reservation of Slurm, all at the same time."""


class Nodeset(Model):
    """Workers of one kind: nodes `<name>-0`, `<name>-1`, …"""

    name: NodesetName
    """Prefix of the node names; also a feature of the nodes."""
    kind: Literal["dynamic", "static"] = "dynamic"
    """dynamic: Slurm knows a node from its first start until its removal; static: slurm.conf lists
    the node, which is down while it is absent. A topology requires static. Nodes on demand, and
    nodes with `keep_machine`, are always static."""
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS), Number]
    """Number of nodes; with `on_demand`, the largest number of nodes that are awake."""
    on_demand: OnDemand | None = None
    """Start nodes when jobs need them, and stop idle nodes; by default all nodes always run."""
    cpus: Annotated[int, Field(ge=1, le=4096), Number]
    """Number of CPUs of a node; also the CPU limit of its pod."""
    sockets: Annotated[int, Field(ge=1, le=64), Number] | None = None
    """Number of CPU sockets; by default the machine's number, or one per CPU for static nodes."""
    threads_per_core: Annotated[int, Field(ge=1, le=8), Number] | None = None
    """CPUs per core; by default the machine's number, or one for static nodes."""
    cpu_request: Annotated[float, Field(gt=0), Number] | None = None
    """CPUs that a pod reserves in Kubernetes; by default all of them. A smaller number lets nodes
    share a machine, for development."""
    exclusive_cpus: bool = False
    """Make the pods 'Guaranteed', so that the kubelet's CPU manager (policy 'static') gives each
    node CPUs that no other pod uses. For this, the pods' sidecar containers also get limits."""
    shared_with_pods: bool = False
    """Let pods that Slurm schedules ('bridge') run on the machines of these nodes, beside the jobs.
    The nodes' own pods then reserve only a little in Kubernetes, and each needs its own machine."""
    pods_only: bool = False
    """Like `shared_with_pods`, but no jobs of users run on these nodes. They are only in the
    partition 'pods', and their own pods reserve no GPUs, so that the pods of users can use them."""
    memory: Annotated[MemoryMiB, at_least(_LEAST_MEMORY)]
    """Memory of a node, such as '16GiB'; also the memory limit of its pod. A part is reserved for
    Slurm's daemons."""
    ephemeral_storage: MemoryMiB | None = None
    """Disk limit of a node's pod, such as '100GiB', for its spool and the jobs' /tmp; by default no
    limit."""
    gpus: Gpus | None = None
    features: tuple[DnsLabel, ...] = ()
    """Further features for `sbatch --constraint`."""
    weight: Annotated[int, Field(ge=1, le=4_294_967_280), Number] | None = None
    """Scheduling weight: Slurm fills nodes of low weight first; by default 1, as in Slurm."""
    parameters: dict[ParameterName, Scalar] = {}
    """Further parameters of slurm.conf's NodeName lines; they override those of the stack."""
    drain_grace: Seconds = 3600
    """Seconds that jobs may continue on a node that is being removed, before they are requeued."""
    roll: Roll = Roll()
    node_selector: dict[LabelKey, SelectedValue] = {}
    """Labels of the Kubernetes nodes that the nodeset's pods may run on."""
    keep_machine: bool = False
    """Start each new pod of a node on the machine of the node's previous pod, while this machine
    exists. A node's name, topology and drain then always apply to the same machine."""
    affinity: dict[
        Literal["nodeAffinity", "podAffinity", "podAntiAffinity"], dict[str, JsonValue]
    ] = {}
    """Affinity of the pods, in Kubernetes' format."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of Kubernetes nodes that the pods tolerate."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    volumes: tuple[Volume, ...] = ()
    """Further volumes of the pods."""
    isolation: Isolation = Isolation()
    pod: Pod = Pod()
    limits: ProcessLimits = ProcessLimits()
    checks: Choices = {}
    """Effect and limits of each check on the nodes; they override `health.checks`. false disables a
    check. A check with a key here runs even if the nodes' hardware does not require it."""

    @property
    def requested_cpus(self) -> float:
        """Number of CPUs that each pod needs on its machine."""
        return self.cpu_request or self.cpus

    @property
    def requested_memory(self) -> int:
        """Memory that each pod needs on its machine in MiB, including huge pages."""
        return self.memory + sum(self.pod.hugepages.values())

    @property
    def pods_setting(self) -> str | None:
        """Name of the setting that lets pods run on the machines of these nodes, or None."""
        if self.pods_only:
            return "pods_only"
        return "shared_with_pods" if self.shared_with_pods else None

    @property
    def runs_pods(self) -> bool:
        """Whether pods that Slurm schedules run on the machines of these nodes."""
        return self.pods_setting is not None

    @property
    def own_gpus(self) -> Gpus | None:
        """GPUs that the nodes' own pods have, so that jobs can use them."""
        return None if self.pods_only else self.gpus

    def runs_gpu_count(self) -> bool:
        """Return whether the nodes run the check gpu-count with the limits of `health.checks`."""
        gpus = self.own_gpus
        whole = gpus is not None and gpus.vendor() == NVIDIA and not gpus.mig
        return whole and self.checks.get(GPU_COUNT) is not False

    @model_validator(mode="before")
    @classmethod
    def _some_are_static(cls, value: Any) -> Any:
        """Make nodes on demand, and nodes with `keep_machine`, static by default.

        Slurm must keep the records of these nodes while they are absent.
        """
        if not isinstance(value, dict):
            return value
        if value.get("on_demand") is not None or value.get("keep_machine") is True:
            return {"kind": "static", **value}
        return value

    @model_validator(mode="after")
    def _kept_machines_fit(self) -> Self:
        if self.keep_machine and self.kind != "static":
            said = f"{self.kind}: nodes with 'keep_machine' are always static; remove 'kind'"
            raise cross_field("kind", said)
        return self

    @model_validator(mode="after")
    def _on_demand_fits(self) -> Self:
        chosen = self.on_demand
        if chosen is None:
            return self
        if "roll" in self.model_fields_set:
            raise cross_field(
                "roll",
                "has no effect, because the deploy replaces nodes on demand when they are idle; "
                "remove 'roll'",
            )
        if self.keep_machine:
            raise cross_field(
                "keep_machine",
                "true: nodes on demand have no machine while they sleep; remove 'keep_machine'",
            )
        if self.kind != "static":
            raise cross_field(
                "kind", f"{self.kind}: nodes on demand are always static; remove 'kind'"
            )
        if chosen.largest_min() > self.replicas:
            raise cross_field(
                "on_demand",
                f"min: {chosen.largest_min()}: expected at most 'replicas' of the nodeset, "
                f"which is {self.replicas}; lower 'min' in 'on_demand' and in its "
                "'schedule', or raise 'replicas'",
            )
        names = node_names(self.name, self.replicas)
        for name in chosen.keep:
            if name not in names:
                raise cross_field(
                    "on_demand.keep", f"'{name}' is not a node; {known_names(name, names)}"
                )
        return self

    @model_validator(mode="after")
    def _sharing_fits(self) -> Self:
        kind = self.pods_setting
        if kind is None:
            return self
        chosen = {
            "shared_with_pods": self.shared_with_pods and self.pods_only,
            "cpu_request": self.cpu_request,
            "exclusive_cpus": self.exclusive_cpus,
            "on_demand": self.on_demand,
            "pod.hugepages": self.pod.hugepages,
            "pod.resources": self.pod.resources,
            "gpus.mig": self.pods_only and self.gpus and self.gpus.mig,
            "gpus.shards": self.pods_only and self.gpus and self.gpus.shards,
        }
        for name, value in chosen.items():
            if value:
                raise cross_field(
                    name, f"cannot be combined with '{kind}: true'; remove one of the two settings"
                )
        return self

    @model_validator(mode="after")
    def _request_fits_size(self) -> Self:
        if self.cpu_request is not None and self.cpu_request > self.cpus:
            raise cross_field(
                "cpu_request",
                f"{self.cpu_request:g}: expected at most 'cpus' of the nodeset, which is "
                f"{self.cpus}; lower 'cpu_request', or raise 'cpus'",
            )
        return self

    @model_validator(mode="after")
    def _exclusive_cpus_are_reserved(self) -> Self:
        if self.exclusive_cpus and self.requested_cpus != self.cpus:
            raise cross_field(
                "cpu_request",
                f"{self.cpu_request:g}: with 'exclusive_cpus: true', a node reserves all its "
                f"{self.cpus} CPUs; remove 'cpu_request'",
            )
        return self

    @model_validator(mode="after")
    def _gpus_are_requested_once(self) -> Self:
        for name in self.gpus.kubernetes_resources() if self.gpus else ():
            if name in self.pod.resources:
                raise cross_field(
                    "pod.resources",
                    f"'{name}': the stack derives this resource from 'gpus' of the nodeset; "
                    "remove it from pod.resources",
                )
        return self

    @model_validator(mode="after")
    def _directories_fit_memory(self) -> Self:
        if self.isolation.in_memory() > self.memory:
            raise cross_field(
                "isolation",
                f"'tmp', 'var_tmp' and 'shm' use {self.isolation.in_memory()} MiB of memory: "
                f"expected at most the memory of a node, {self.memory} MiB; lower these sizes",
            )
        return self

    @model_validator(mode="after")
    def _volumes_fit_memory(self) -> Self:
        for index, volume in enumerate(self.volumes):
            space = volume.empty
            if space and space.medium == "memory" and (space.size or 0) > self.memory:
                raise cross_field(
                    f"volumes[{index}].empty.size",
                    f"{space.size} MiB: expected at most the memory of a node, {self.memory} MiB, "
                    "because files with 'medium: memory' use the pod's memory; lower this size",
                )
        return self

    @model_validator(mode="after")
    def _cpus_divide(self) -> Self:
        parts = (self.sockets or 1) * (self.threads_per_core or 1)
        if self.cpus % parts:
            raise cross_field(
                "cpus",
                f"{self.cpus}: expected a multiple of {parts}, which is 'sockets' times "
                "'threads_per_core'; change one of these numbers",
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        each_its_own(self.volumes)
        if FEATURE_ON_DEMAND in self.features:
            raise cross_field(
                "features",
                f"'{FEATURE_ON_DEMAND}': nodes on demand always have this feature; remove it from "
                "'features'",
            )
        if FEATURE_PODS in self.features:
            raise cross_field(
                "features",
                f"'{FEATURE_PODS}': nodes that run pods always have this feature; remove it from "
                "'features'",
            )
        for feature in duplicates((self.name, *self.features)):
            said = "the nodeset's name is always a feature of its nodes; remove it from 'features'"
            if feature != self.name:
                said = "the feature is listed twice; remove one of the entries"
            raise cross_field("features", f"'{feature}': {said}")
        return self

    @model_validator(mode="after")
    def _checks_are_known(self) -> Self:
        refuse_choices(self.checks)
        return self

    @model_validator(mode="after")
    def _parameters_are_free(self) -> Self:
        refuse_owned(self.parameters, _OWNED_PARAMETERS)
        return self
