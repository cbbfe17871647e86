"""Nodesets: pods with slurmd, which are dynamic, static or on-demand Slurm nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from agents.labels import HOSTNAME
from agents.reconciler.wanted import Roll
from components import conventions as c
from components import pods
from components.cluster.interface import NodeClass
from components.identity import nodessh
from components.identity.auth import Conf, pod_security
from components.outputs import once_known
from components.settings import Nodeset as NodesetSettings
from components.settings.pods import InitContainer, is_rdma
from components.site import MountedJail, Site, Slurmctld
from components.slurmconf import node_conf, node_options, node_shape
from components.storage.volumes import (
    shows,
    volume,
    volume_mounts,
)

_RUNTIMES_OPEN_FILES = 2**20
"""Limit of open files that containerd and Docker set for containers. To set a higher limit, slurmd
needs a capability."""
SLURMD_CAPABILITIES = (
    # slurmstepd switches to the job's user, sets owners of files and signals processes.
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    # The SPANK plugin creates the job's mount namespace and changes its root.
    "SYS_ADMIN",
    "SYS_CHROOT",
    # slurmd sets priorities of jobs, and inspects processes of other users.
    "SYS_NICE",
    "SYS_PTRACE",
    # Checks read the kernel's log.
    "SYSLOG",
)
_AUTOSCALERS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations that forbid autoscalers to evict a node's pod and to remove the pod's machine. An
idle node may get a job at any time. Evicting a node that is not on demand saves no machine:
Kubernetes only starts its pod again on another machine."""
_SHARED = {"cpu": "100m", "memory": "128Mi"}
"""What a pod reserves if pods share its machine. It is for slurmd: what jobs can use must stay free
in Kubernetes, so that Slurm can also give it to pods."""
_STOP_MARGIN = 60
"""When `drain_grace` has passed, a pod has this many seconds to delete its node record and to stop
slurmd."""


@dataclass(frozen=True)
class NodesetArgs:
    site: Site
    slurmctld: Slurmctld
    settings: NodesetSettings
    machines: NodeClass
    guard: Sequence[pods.Spec]
    """Init containers that run before all others."""
    scripts: pulumi.Input[str]
    """ConfigMap with the scripts that slurmd and tasks run."""
    checks: pulumi.Input[str]
    """Checks of the nodeset's nodes as JSON. An empty text means that there are no checks."""
    node_ssh: pulumi.Input[str]
    """Secret of a `NodeSsh`."""
    user_images: pods.Mounted
    """Volume with the site's settings for container images that users run."""
    jail: MountedJail
    bridge: str
    """Host and port of the bridge, which nodes ask if pods share their machines."""
    bridge_key: pods.Mounted | None
    """Volume with the key for questions to the bridge, if the nodes' machines run pods."""
    confinement_required: bool
    """Whether a node must refuse all jobs if it cannot confine a job to the job's resources."""


class Nodeset(pulumi.ComponentResource):
    """A StatefulSet whose pods are the nodes `<name>-0`, `<name>-1`, …

    The deploy does not wait for the pods, because one node may be down for a long time while others
    work. A nodeset on demand has a PodTemplate instead of a StatefulSet. From this template,
    agents/ondemand creates pods.
    """

    template: pulumi.Output[str]
    """Template of the pods as JSON. Pulumi knows this output only after Kubernetes has stored the
    template."""
    digest: pulumi.Output[str]
    """Digest of the template."""

    def __init__(
        self, name: str, args: NodesetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("nodeset", "Nodeset"), name, None, opts)
        settings = args.settings
        labels = {
            **pods.labels(c.WORKER),
            c.LABEL_NODESET: settings.name,
            **(c.ON_DEMAND_LABELS if settings.on_demand else {}),
        }
        node_settings = pods.config_map(
            f"{name}-isolation",
            f"{settings.name}-isolation",
            args.site.namespace,
            pulumi.Output.from_input(args.checks).apply(
                lambda checks: {
                    c.NODE_OPTIONS: node_options(settings, args.jail.submounts),
                    **({c.NODE_CHECKS: checks} if checks else {}),
                    **({c.CONFINEMENT_REQUIRED: "yes"} if args.confinement_required else {}),
                }
            ),
            pulumi.ResourceOptions(parent=self),
        )
        template = _template(args, labels, node_settings.metadata.name)
        if settings.on_demand:
            made = self._pod_template(f"{name}-template", args, labels, template)
        else:
            made = self._stateful_set(f"{name}-slurmd", args, labels, template)
        # Derive this output from a value of the object. Pulumi then creates the object first, and
        # only afterwards the resources that use this output.
        self.template = once_known(pulumi.Output.json_dumps(template, sort_keys=True), made)
        self.digest = self.template.apply(lambda text: c.checksum({"template": text}))
        self.register_outputs({"digest": self.digest})

    def _stateful_set(
        self, name: str, args: NodesetArgs, labels: dict[str, str], template: pods.Spec
    ) -> pulumi.Output[str]:
        settings = args.settings
        made = k8s.apps.v1.StatefulSet(
            name,
            metadata={
                "name": settings.name,
                "namespace": args.site.namespace,
                # Wait only until Kubernetes has observed the StatefulSet. Do not use skipAwait:
                # Pulumi would then not wait for the deletion either. It would delete slurmctld
                # while nodes still need it to remove their records.
                "annotations": {
                    "pulumi.com/waitFor": "jsonpath={.status.observedGeneration}",
                    c.ANNOTATION_ROLL: Roll(**settings.roll.model_dump()).model_dump_json(),
                },
            },
            spec={
                "replicas": settings.replicas,
                "serviceName": c.HOSTS,
                "podManagementPolicy": "Parallel",
                # Let Kubernetes replace no outdated pods: agents/reconciler replaces each pod when
                # its jobs have ended.
                "updateStrategy": {"type": "OnDelete"},
                "selector": {"matchLabels": labels},
                "template": template,
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(
                    delete=f"{settings.drain_grace + 2 * _STOP_MARGIN}s"
                ),
            ),
        )
        called: pulumi.Output[str] = made.metadata.name
        return called

    def _pod_template(
        self, name: str, args: NodesetArgs, labels: dict[str, str], template: pods.Spec
    ) -> pulumi.Output[str]:
        made = k8s.core.v1.PodTemplate(
            name,
            metadata={
                "name": args.settings.name,
                "namespace": args.site.namespace,
                "labels": labels,
                "annotations": {c.ANNOTATION_NODES: str(args.settings.replicas)},
            },
            template=template,
            opts=pulumi.ResourceOptions(parent=self),
        )
        called: pulumi.Output[str] = made.metadata.name
        return called


def _template(
    args: NodesetArgs, labels: dict[str, str], node_settings: pulumi.Input[str]
) -> pods.Spec:
    settings = args.settings
    annotations = {**_AUTOSCALERS, **settings.pod.annotations}
    if settings.runs_pods:
        # Not in the StatefulSet's selector, which cannot change.
        labels = {**labels, **c.SHARED_LABELS}
    mounted = [
        nodessh.mounted(args.node_ssh),
        args.user_images,
        *([args.bridge_key] if args.bridge_key else []),
        pods.mounted(pods.disk_volume("scratch"), c.WORKER_SCRATCH),
        pods.mounted(pods.disk_volume("spool"), c.WORKER_SPOOL),
        pods.mounted(pods.memory_volume("shm", f"{settings.memory // 2}Mi"), "/dev/shm"),
        pods.mounted(
            pods.config_volume("scripts", args.scripts, mode=0o555), c.SCRIPTS, read_only=True
        ),
        pods.mounted(
            pods.config_volume("isolation", node_settings), c.NODE_SETTINGS, read_only=True
        ),
    ]
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            **pods.pod_defaults(args.site.images),
            **args.slurmctld.names(),
            **pod_security(args.site.auth, pods.PING),
            **_placement(settings, args.machines),
            # Set the subdomain only for nodes on demand, because a StatefulSet itself sets the
            # subdomain of its pods.
            **({"subdomain": c.HOSTS} if settings.on_demand else {}),
            "terminationGracePeriodSeconds": settings.drain_grace + _STOP_MARGIN,
            "initContainers": _init_containers(args),
            "containers": [_slurmd(args, mounted)],
            "volumes": [
                *args.site.volumes(),
                *args.jail.volumes(),
                *(volume(further.name, further) for further in settings.volumes),
                *pods.volumes(mounted),
            ],
        },
    }


def _init_containers(args: NodesetArgs) -> list[pods.Spec]:
    settings = args.settings
    containers = [
        *args.guard,
        *map(_site_container, settings.pod.init_containers),
        *args.site.sidecars(Conf(server=args.slurmctld.server)),
        _join(args),
    ]
    if not settings.exclusive_cpus:
        return containers
    return [_guaranteed(container, settings) for container in containers]


def _placement(settings: NodesetSettings, machines: NodeClass) -> pods.Spec:
    """Return the parts of the pods' spec that determine their Kubernetes nodes and their
    priority."""
    tolerations = [*pods.tolerations(settings.tolerations), *machines.tolerations()]
    # Also run on a machine that the reconciler has marked as faulty: only a pod there can check
    # whether the fault still exists.
    tolerations.append({"key": c.TAINT_UNHEALTHY, "operator": "Exists"})
    if settings.runs_pods:
        tolerations.append({"key": c.TAINT_PODS, "operator": "Exists"})
    chosen = {
        "nodeSelector": {**machines.labels, **settings.node_selector},
        "affinity": _affinity(settings),
        "tolerations": tolerations,
        "priorityClassName": settings.priority_class,
        "schedulingGates": [{"name": c.GATE_MACHINE}] if settings.keep_machine else [],
    }
    return {key: value for key, value in chosen.items() if value}


def _affinity(settings: NodesetSettings) -> pods.Spec:
    """Return the affinity in the settings. Nodes whose machines run pods also keep away from each
    other, because each counts all CPUs of its machine."""
    chosen: dict[str, Any] = dict(settings.affinity.items())
    if not settings.runs_pods:
        return chosen
    apart = {
        "labelSelector": {"matchLabels": c.SHARED_LABELS},
        "topologyKey": HOSTNAME,
    }
    anti = dict(chosen.get("podAntiAffinity", {}))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    anti[required] = [*anti.get(required, ()), apart]
    return {**chosen, "podAntiAffinity": anti}


def _resources(settings: NodesetSettings, machines: NodeClass) -> pods.Spec:
    """Return a pod's requests and limits. They are equal, except if nodes share their machine with
    each other or with pods."""
    size = {
        "cpu": str(settings.cpus),
        "memory": f"{settings.memory}Mi",
        **(
            {"ephemeral-storage": f"{settings.ephemeral_storage}Mi"}
            if settings.ephemeral_storage
            else {}
        ),
    }
    if settings.own_gpus:
        size |= {name: str(n) for name, n in settings.own_gpus.kubernetes_resources().items()}
    if not settings.pods_only:
        size |= machines.resources
    size |= {name: str(n) for name, n in settings.pod.resources.items()}
    size |= {pages: f"{memory}Mi" for pages, memory in settings.pod.hugepages.items()}
    shared = _SHARED if settings.runs_pods else {}
    reserved = {**size, "cpu": f"{settings.requested_cpus:g}", **shared}
    return {"resources": {"requests": reserved, "limits": size}}


def _guaranteed(container: pods.Spec, settings: NodesetSettings) -> pods.Spec:
    """Return an init container or sidecar with limits that equal its requests.

    The kubelet gives exclusive CPUs only to pods in which all containers have such limits. An init
    container that ends before slurmd starts may request as much as slurmd, because Kubernetes does
    not add its requests to those of slurmd.
    """
    if container.get("restartPolicy") == "Always":
        return {**container, **pods.exactly("200m", "64Mi")}
    return {**container, **pods.exactly(str(settings.cpus), f"{settings.memory}Mi")}


def _environment(args: NodesetArgs) -> list[pods.Spec]:
    return [
        pods.field("NODE_NAME", "metadata.name"),
        pods.field("POD_IP", "status.podIP"),
        {"name": "SLURM_CONF_SERVER", "value": args.slurmctld.server},
        {"name": "NODE_SHAPE", "value": node_shape(args.settings)},
    ]


def _join(args: NodesetArgs) -> pods.Spec:
    return {
        "name": "join",
        **pods.image("worker", args.site.images),
        "command": [f"{c.PROGRAMS}/join"],
        "env": _environment(args),
        **pods.security(user=c.SLURM_ID),
        "volumeMounts": args.site.auth.client_mounts(),
    }


def _site_container(container: InitContainer) -> pods.Spec:
    """Return an init container that the settings add.

    The prefix `site-` of its name avoids conflicts with the names of other containers.
    """
    environment = pods.environment(container.environment)
    return {
        "name": f"site-{container.name}",
        "image": container.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(container.command),
        **({"env": environment} if environment else {}),
        **pods.security(*container.capabilities, user=container.user),
    }


def _image(args: NodesetArgs) -> pods.Spec:
    ours = pods.image("worker", args.site.images)
    chosen = args.settings.pod.image
    return {**ours, "image": chosen} if chosen else ours


def _locked_memory(args: NodesetArgs) -> int | str | None:
    devices = (*args.settings.pod.resources, *args.machines.resources)
    chosen = args.settings.limits.locked_memory
    return chosen or ("unlimited" if any(map(is_rdma, devices)) else None)


def _limits(args: NodesetArgs) -> list[pods.Spec]:
    """Return slurmd's limits, such as `c=0 n=65536`: options of ulimit, with sizes in KiB."""
    limits = args.settings.limits
    chosen = {"c": _kib(limits.core), "n": limits.open_files, "l": _kib(_locked_memory(args))}
    words = [f"{flag}={value}" for flag, value in chosen.items() if value is not None]
    return [{"name": "LIMITS", "value": " ".join(words)}] if words else []


def _kib(size: int | str | None) -> int | str | None:
    if size == "none":
        return 0
    return size * 1024 if isinstance(size, int) else size


def _capabilities(args: NodesetArgs) -> tuple[str, ...]:
    """Return slurmd's capabilities.

    They include SYS_RESOURCE only if a limit in the settings exceeds the container runtime's limit.
    """
    many = (args.settings.limits.open_files or 0) > _RUNTIMES_OPEN_FILES
    raised = many or _locked_memory(args) not in (None, "none")
    return (*SLURMD_CAPABILITIES, *(("SYS_RESOURCE",) if raised else ()))


def _slurmd(args: NodesetArgs, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    settings = args.settings
    # Only dynamic nodes need a description here: slurm.conf contains the description of static
    # nodes.
    description = node_conf(settings) if settings.kind == "dynamic" else ""
    return {
        "name": "slurmd",
        **_image(args),
        **pods.security(*_capabilities(args), user=0, apparmor=False, seccomp=False),
        **pods.termination_log_outside_dev(),
        "env": [
            *_environment(args),
            *args.site.auth.daemon_environment(),
            pods.field("MACHINE", "spec.nodeName"),
            {"name": "NODE_CONF", "value": description},
            {"name": "DRAIN_GRACE", "value": str(settings.drain_grace)},
            *([{"name": "ON_DEMAND", "value": "yes"}] if settings.on_demand else []),
            *([{"name": "BRIDGE", "value": args.bridge}] if settings.runs_pods else []),
            *([{"name": "PODS_ONLY", "value": "yes"}] if settings.pods_only else []),
            {"name": "SLURMSTACK_SCRATCH", "value": c.WORKER_SCRATCH},
            *_limits(args),
            *pods.environment(settings.pod.environment),
            *shows(args.jail.shown(settings.volumes)),
        ],
        **_resources(settings, args.machines),
        "ports": [{"name": "slurmd", "containerPort": c.SLURMD_PORT}],
        **pods.probes(pods.command(f"{c.PROGRAMS}/ready")),
        "lifecycle": {"preStop": pods.command(f"{c.PROGRAMS}/leave")},
        "volumeMounts": [
            *args.site.daemon_mounts(),
            *args.jail.mounts(),
            *volume_mounts(settings.volumes),
            *pods.mounts(mounted),
        ],
    }
