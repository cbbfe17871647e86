"""Common parts of the Slurm layer's pods, such as rights, volumes and users."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s

from agents import labels as names
from components import conventions as c
from components.settings import Toleration
from images import digests

Spec = dict[str, Any]
"""A part of a pod's spec, with the keys of Kubernetes' API."""


LABELS = {names.NAME: c.PROJECT}
"""Labels of all pods of the project."""
PING: Spec = {"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}
"""Sysctl that lets every user run ping, as in Debian. It is one of the sysctls that Kubernetes
calls safe and allows by default."""

NO_ORPHANED_MEMORY: Spec = {"name": "kernel.shm_rmid_forced", "value": "1"}
"""Sysctl that lets the kernel remove System V shared memory when no process uses it any more.
Kubernetes also calls this sysctl safe."""


ALONE: Spec = {"replicas": 1, "strategy": {"type": "Recreate"}}
"""Fields of a Deployment that never runs two pods: a new pod starts only after the old pod has
ended."""


def labels(component: str) -> dict[str, str]:
    """Return labels that select the pods of one component."""
    return {**LABELS, c.LABEL_COMPONENT: component}


def selector(*components: str) -> Spec:
    """Select the pods of some components; without components, all pods of the project."""
    either = {"key": c.LABEL_COMPONENT, "operator": "In", "values": list(components)}
    return {"matchLabels": LABELS, **({"matchExpressions": [either]} if components else {})}


# --- Containers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """Source of the pods' images."""

    registry: str | None
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with the registry's credentials."""


def image(name: str, images: Images) -> Spec:
    """Return the image of a container. A machine pulls the image only once, because the image's
    name identifies its content."""
    return {"image": _reference(name, images.registry), "imagePullPolicy": "IfNotPresent"}


@cache
def _reference(name: str, registry: str | None) -> str:
    """Return the image's full name. The result is cached, because many containers have the same
    image."""
    return digests.pinned(name, registry)


def security(*capabilities: str, user: int, apparmor: bool = True, seccomp: bool = True) -> Spec:
    """Return a container's security context. The container has only the named capabilities, and is
    never privileged.

    The runtime's AppArmor profile refuses all mounts, and its seccomp profile refuses
    pivot_root(2). A container that needs one of these calls runs without the profile that refuses
    the call. Instead, agents/confine.py sets a seccomp filter in the container.
    """
    context: Spec = {
        "allowPrivilegeEscalation": bool(capabilities),
        "capabilities": {
            "drop": ["ALL"],
            **({"add": sorted(capabilities)} if capabilities else {}),
        },
        "privileged": False,
        "runAsGroup": user,
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "seccompProfile": {"type": "RuntimeDefault" if seccomp else "Unconfined"},
    }
    if not apparmor:
        context["appArmorProfile"] = {"type": "Unconfined"}
    return {"securityContext": context}


def termination_log_outside_dev() -> Spec:
    """Move the termination message out of /dev, for a container that shows its /dev to users.

    By default, the message is a file in /dev. If users saw this file, all of them could write to it
    and fill the machine's disk.
    """
    return {"terminationMessagePath": "/run/termination-log"}


def owned_by(group: int, **further: Any) -> Spec:
    """Give a pod's volumes to a group; `further` are keys of the pod's security context.

    To save time, Kubernetes changes the group of a volume's files only if the volume's root folder
    has another group.
    """
    owner = {"fsGroup": group, "fsGroupChangePolicy": "OnRootMismatch"}
    return {"securityContext": {**owner, **further}}


def environment(variables: Mapping[str, pulumi.Input[str]]) -> list[Spec]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def field(variable: str, path: str) -> Spec:
    """Return an environment variable with a field of the pod itself."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def requests(cpu: str, memory: str) -> Spec:
    """Reserve resources for a small daemon, without a limit that could kill it."""
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


def exactly(cpu: str, memory: str) -> Spec:
    """Reserve resources for a container, and limit the container to the same resources."""
    size = {"cpu": cpu, "memory": memory}
    return {"resources": {"requests": size, "limits": size}}


def probes(asked: Spec, at_start: Spec | None = None) -> Spec:
    """Return probes of a daemon that is ready while the probe `asked` succeeds.

    `at_start` replaces `asked` until the daemon has started.

    The interval is longer after the first success, because each probe starts a process. There is no
    time limit for the daemon's start, because a restart would only begin the same work again.
    """
    limit = {"timeoutSeconds": 10}
    begins = {"periodSeconds": 1, "failureThreshold": 2**31 - 1}
    return {
        "startupProbe": {**(at_start or asked), **limit, **begins},
        "readinessProbe": {**asked, **limit, "periodSeconds": 10},
    }


def command(*words: str) -> Spec:
    """Return a probe or hook that runs a command in the container."""
    return {"exec": {"command": list(words)}}


def open_port(port: int) -> Spec:
    """Return a probe that connects to a TCP port."""
    return {"tcpSocket": {"port": port}}


def page(path: str, port: int) -> Spec:
    """Return a probe that requests a path with HTTP."""
    return {"httpGet": {"path": path, "port": port}}


def fail_on(container: str, *codes: int) -> Spec:
    """Return a policy for a Job: it fails if a container ends with one of these exit codes, and
    retries after any other failure."""
    refused = {"containerName": container, "operator": "In", "values": list(codes)}
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": refused}]}}


def scheduled(schedule: str, job: Spec) -> Spec:
    """Return a CronJob's spec, in UTC.

    Two runs never overlap: a run waits until the run before it has ended. If it would have to wait
    for more than an hour, Kubernetes skips it.
    """
    return {
        "schedule": schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 3600,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": job},
    }


def pod_defaults(images: Images) -> Spec:
    """Return defaults for a pod: it gets no credentials for Kubernetes' API, and no addresses of
    Services as environment variables."""
    secrets = [{"name": name} for name in images.pull_secrets]
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def tolerations(settings: Iterable[Toleration]) -> list[Spec]:
    return [
        {
            "operator": toleration.operator,
            **({"key": toleration.key} if toleration.key else {}),
            **({"value": toleration.value} if toleration.value is not None else {}),
            **({"effect": toleration.effect} if toleration.effect else {}),
            **({"tolerationSeconds": toleration.seconds} if toleration.seconds is not None else {}),
        }
        for toleration in settings
    ]


def template(
    component: str, pod: Spec, annotations: Mapping[str, pulumi.Input[str]] | None = None
) -> Spec:
    annotated = {"annotations": annotations} if annotations else {}
    return {"metadata": {"labels": labels(component), **annotated}, "spec": pod}


def workload(
    component: str,
    pod: Spec,
    annotations: Mapping[str, pulumi.Input[str]] | None = None,
    **fields: Any,
) -> Spec:
    """Return the spec of a Deployment, StatefulSet or DaemonSet; `fields` are additional keys.

    The pods get the annotations, so if an annotation's value changes, Kubernetes replaces the pods.
    """
    return {
        "selector": {"matchLabels": labels(component)},
        "template": template(component, pod, annotations),
        **fields,
    }


def apart_from(*components: str) -> Spec:
    """Keep a pod off Kubernetes nodes that run a pod of these components."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_on_one_node(*components)]}
    return {"affinity": {"podAntiAffinity": required}}


def rather_apart_from(*components: str) -> Spec:
    """Prefer Kubernetes nodes that run no pod of these components."""
    rather = {"weight": 100, "podAffinityTerm": _on_one_node(*components)}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [rather]}
    return {"affinity": {"podAntiAffinity": preferred}}


def beside(component: str) -> Spec:
    """Run a pod only on the Kubernetes node that runs a pod of this component."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_on_one_node(component)]}
    return {"affinity": {"podAffinity": required}}


def _on_one_node(*components: str) -> Spec:
    return {"labelSelector": selector(*components), "topologyKey": "kubernetes.io/hostname"}


def spread(component: str) -> Spec:
    """Spread the pods over all Kubernetes nodes, if possible."""
    return {
        "topologySpreadConstraints": [
            {
                "labelSelector": {"matchLabels": labels(component)},
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ]
    }


def alias(ip: str, name: str) -> Spec:
    """Return a line for a pod's /etc/hosts."""
    return {"ip": ip, "hostnames": [name]}


def named(hosts_domain: str, *daemons: pulumi.Input[Spec]) -> Spec:
    """Let a pod resolve host names of other pods without a domain, such as `cpu-0`.

    `daemons` are lines of the pod's /etc/hosts.

    Users need these names. slurmctld also needs them, because it connects to the host name that
    srun sends. A name that does not resolve blocks slurmctld for ten seconds.
    """
    # Put the daemons' addresses in /etc/hosts, because Slurm does not cache addresses. Otherwise,
    # each job would look up slurmctld in DNS five times, which would be 5 % of the total cost of a
    # short job.
    hosts = {"hostAliases": list(daemons)}
    # Look up a name with a dot as it is. Otherwise, the resolver would first append each of five
    # search domains to the name.
    whole = {"name": "ndots", "value": "1"}
    return {"dnsConfig": {"searches": [hosts_domain], "options": [whole]}, **hosts}


def service_port(name: str, port: int) -> list[Spec]:
    """Return the `ports` of a Service with a single port. The pods listen on the same port."""
    return [{"name": name, "port": port, "targetPort": port}]


def service(
    resource_name: str,
    name: str,
    namespace: pulumi.Input[str],
    workload: k8s.apps.v1.Deployment | k8s.apps.v1.StatefulSet,
    ports: list[Spec],
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.Service:
    """Create the Service of a workload's pods."""
    return k8s.core.v1.Service(
        resource_name,
        metadata={"name": name, "namespace": namespace},
        spec={"selector": workload.spec.selector.match_labels, "ports": ports},
        opts=opts,
    )


# --- Metrics -------------------------------------------------------------------------------------


def metrics_port(component: str) -> list[Spec]:
    return [{"name": c.METRICS, "containerPort": c.SCRAPED[component]}]


def metrics_service(
    resource_name: str,
    component: str,
    namespace: pulumi.Input[str],
    deployment: k8s.apps.v1.Deployment,
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.Service:
    """Create the Service through which Prometheus scrapes a component.

    The Service selects the port by name. So it sends no requests to pods without such a port, such
    as the pods of a Job.
    """
    port = {"name": c.METRICS, "port": c.SCRAPED[component], "targetPort": c.METRICS}
    return k8s.core.v1.Service(
        resource_name,
        metadata={"name": component, "namespace": namespace, "labels": labels(component)},
        spec={"selector": deployment.spec.selector.match_labels, "ports": [port]},
        opts=opts,
    )


# --- Volumes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Volume:
    """Volume that a PersistentVolumeClaim requests. `size` is in MiB."""

    access: Literal["ReadWriteOnce", "ReadWriteMany"]
    size: int
    storage_class: pulumi.Input[str] | None
    """Name of the StorageClass. With None, the cluster's default class applies; with "", no
    class."""
    name: pulumi.Input[str] | None = None
    """Name of the PersistentVolume that the claim is bound to."""


def claim(
    resource_name: str,
    name: str,
    namespace: pulumi.Input[str],
    volume: Volume,
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.PersistentVolumeClaim:
    """Create a PersistentVolumeClaim with a fixed name."""
    chosen: Spec = {}
    if volume.storage_class is not None:
        chosen["storageClassName"] = volume.storage_class
    if volume.name is not None:
        chosen["volumeName"] = volume.name
    return k8s.core.v1.PersistentVolumeClaim(
        resource_name,
        metadata={"name": name, "namespace": namespace},
        spec={
            "accessModes": [volume.access],
            "resources": {"requests": {"storage": f"{volume.size}Mi"}},
            **chosen,
        },
        opts=opts,
    )


@dataclass(frozen=True)
class Mounted:
    """A volume of a pod with its mount in a container."""

    volume: Spec
    mount: Spec


def mounted(volume: Spec, path: str, *, read_only: bool = False) -> Mounted:
    """Mount a volume at a path of a container."""
    return Mounted(volume, mount(volume["name"], path, read_only=read_only))


def volumes(both: Iterable[Mounted]) -> list[Spec]:
    return [one.volume for one in both]


def mounts(both: Iterable[Mounted]) -> list[Spec]:
    return [one.mount for one in both]


def mount(volume: str, path: str, *, read_only: bool = False) -> Spec:
    return {"name": volume, "mountPath": path, **({"readOnly": True} if read_only else {})}


def claim_volume(name: str, claim_name: pulumi.Input[str], *, read_only: bool = False) -> Spec:
    """Return a pod's volume for a claim. If the volume is read-only, Kubernetes does not change the
    owners of its files."""
    source: Spec = {"claimName": claim_name, **({"readOnly": True} if read_only else {})}
    return {"name": name, "persistentVolumeClaim": source}


def config_volume(
    name: str,
    config_map: pulumi.Input[str],
    keys: Sequence[str] | None = None,
    mode: int = 0o444,
) -> Spec:
    """Return a volume with a ConfigMap's entries as files: all entries, or only those in `keys`."""
    items = {"items": [{"key": key, "path": key} for key in keys]} if keys else {}
    return {"name": name, "configMap": {"name": config_map, "defaultMode": mode, **items}}


def secret_volume(name: str, secret: pulumi.Input[str], mode: int = 0o440) -> Spec:
    """Return a volume with a Secret's entries as files. By default, only root and the pod's group
    `fsGroup` can read the files."""
    return {"name": name, "secret": {"secretName": secret, "defaultMode": mode}}


def disk_volume(name: str) -> Spec:
    """Return a volume on the disk of the pod's machine. Kubernetes deletes this volume when the pod
    ends."""
    return {"name": name, "emptyDir": {}}


def memory_volume(name: str, size: str) -> Spec:
    """Return a volume in memory. Its files count towards the pod's memory, and are lost when the
    pod ends."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


# --- Files ---------------------------------------------------------------------------------------


def config_map(
    resource_name: str,
    name: pulumi.Input[str],
    namespace: pulumi.Input[str],
    data: Any,
    opts: pulumi.ResourceOptions,
    annotations: Mapping[str, str] | None = None,
) -> k8s.core.v1.ConfigMap:
    """Create a ConfigMap with a fixed name. `data` maps file names to texts, or is an output."""
    metadata: Spec = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return k8s.core.v1.ConfigMap(resource_name, metadata=metadata, data=data, opts=opts)


def secret(
    resource_name: str,
    name: str,
    namespace: pulumi.Input[str],
    data: Mapping[str, pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
    kind: str = "Opaque",
) -> k8s.core.v1.Secret:
    """Create a Secret with a fixed name and these entries."""
    return k8s.core.v1.Secret(
        resource_name,
        metadata={"name": name, "namespace": namespace},
        type=kind,
        string_data=data,
        opts=opts,
    )


# --- Users ---------------------------------------------------------------------------------------


def users_volume(accounts: pulumi.Input[str]) -> Spec:
    return config_volume("users", accounts, ["group", "passwd"])


def users_mount() -> Spec:
    """Return the mount through which a container looks up the users in the settings."""
    return mount("users", c.EXTRAUSERS, read_only=True)
