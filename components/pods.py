"""What the pods of the Slurm layer have in common: rights, volumes, users."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from images import digests

Spec = dict[str, Any]
"""A part of a pod's spec, as Kubernetes' API spells it."""


LABELS = {"app.kubernetes.io/name": c.PROJECT}
"""Labels of all our pods."""
PING: Spec = {"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}
"""Lets every user ping, as Debian does; Kubernetes counts it among the safe sysctls."""

NO_ORPHANED_MEMORY: Spec = {"name": "kernel.shm_rmid_forced", "value": "1"}
"""Removes System V memory that no process has attached any more; another safe sysctl."""


def labels(component: str) -> dict[str, str]:
    """Labels that select the pods of one component."""
    return {**LABELS, c.LABEL_COMPONENT: component}


def selector(*components: str) -> Spec:
    """Selects the pods of some components, or with none named all of ours."""
    either = {"key": c.LABEL_COMPONENT, "operator": "In", "values": list(components)}
    return {"matchLabels": LABELS, **({"matchExpressions": [either]} if components else {})}


# --- Containers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """Where pods get their images."""

    registry: str | None
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets with the registry's credentials."""


def image(name: str, images: Images) -> Spec:
    """The image of a container. Its name says its content, so that no pull need ask twice."""
    return {"image": _reference(name, images.registry), "imagePullPolicy": "IfNotPresent"}


@cache
def _reference(name: str, registry: str | None) -> str:
    """The image's reference. Many containers share an image, whose files are read once."""
    return digests.pinned(name, registry)


def security(*capabilities: str, user: int, apparmor: bool = True, seccomp: bool = True) -> Spec:
    """A container's rights: never privileged, no capability but those named.

    The runtime's profile for AppArmor refuses all mounts, that for seccomp pivot_root(2); a
    container that needs these does without. For seccomp it has a filter of its own then
    (agents/confine.py).
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


def told_outside_dev() -> Spec:
    """For a container that shows its /dev to users.

    What it tells at its end is by default a file there that everybody may write, on the machine's
    disk.
    """
    return {"terminationMessagePath": "/run/termination-log"}


def requests(cpu: str, memory: str) -> Spec:
    """Resources that reserve for a small daemon, without a limit that could kill it."""
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


def answers(asked: Spec, at_start: Spec | None = None) -> Spec:
    """Probes of a daemon that is ready while it answers; `at_start` asks it before it is ready.

    Probes start processes on the node. So a daemon that has answered once is asked less often.
    A start has no time limit, because a restart would only begin the same work again.
    """
    limit = {"timeoutSeconds": 10}
    begins = {"periodSeconds": 1, "failureThreshold": 2**31 - 1}
    return {
        "startupProbe": {**(at_start or asked), **limit, **begins},
        "readinessProbe": {**asked, **limit, "periodSeconds": 10},
    }


def command(*words: str) -> Spec:
    """What a probe or a hook runs in the container."""
    return {"exec": {"command": list(words)}}


def open_port(port: int) -> Spec:
    """What a probe connects to, by TCP."""
    return {"tcpSocket": {"port": port}}


def page(path: str, port: int) -> Spec:
    """What a probe gets, by HTTP."""
    return {"httpGet": {"path": path, "port": port}}


def gives_up(container: str, *codes: int) -> Spec:
    """For a Job: these exit codes stand, and anything else that befalls the pod is tried again."""
    refused = {"containerName": container, "operator": "In", "values": list(codes)}
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": refused}]}}


def scheduled(schedule: str, job: Spec) -> Spec:
    """Of a CronJob, in UTC. One that is late because the last one took so long is left out."""
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
    """No credentials of Kubernetes' API in a pod, and no Service addresses in its environment."""
    secrets = [{"name": name} for name in images.pull_secrets]
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"imagePullSecrets": secrets} if secrets else {}),
    }


def apart_from(*components: str) -> Spec:
    """On no Kubernetes node where a pod of these components is."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_on_one_node(*components)]}
    return {"affinity": {"podAntiAffinity": required}}


def rather_apart_from(*components: str) -> Spec:
    """On a Kubernetes node where no pod of these components is, where there is one."""
    rather = {"weight": 100, "podAffinityTerm": _on_one_node(*components)}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [rather]}
    return {"affinity": {"podAntiAffinity": preferred}}


def beside(component: str) -> Spec:
    """On the Kubernetes node where a pod of this component is."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [_on_one_node(component)]}
    return {"affinity": {"podAffinity": required}}


def _on_one_node(*components: str) -> Spec:
    return {"labelSelector": selector(*components), "topologyKey": "kubernetes.io/hostname"}


def spread(component: str) -> Spec:
    """On as many Kubernetes nodes as there are, where that can be."""
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
    """A line of /etc/hosts."""
    return {"ip": ip, "hostnames": [name]}


def named(hosts_domain: str, *daemons: pulumi.Input[Spec]) -> Spec:
    """Lets a pod find the others by their bare host names, as `cpu-0`; `daemons` are aliases.

    Not for users alone: slurmctld calls an srun back on the host name that it gave, and a name
    that does not resolve halts slurmctld for ten seconds.
    """
    # Nothing in Slurm remembers an address: each job would ask DNS for slurmctld's five times, and
    # with short jobs that is a twentieth of all that they cost.
    hosts = {"hostAliases": list(daemons)}
    # Whole names are asked for as they are, as on any machine, and not below five domains first.
    whole = {"name": "ndots", "value": "1"}
    return {"dnsConfig": {"searches": [hosts_domain], "options": [whole]}, **hosts}


def service_port(name: str, port: int) -> list[Spec]:
    """The one port of a Service, the same as its pods listen on."""
    return [{"name": name, "port": port, "targetPort": port}]


# --- Metrics -------------------------------------------------------------------------------------


def metrics_port(component: str) -> list[Spec]:
    """The port of a container that is scraped."""
    return [{"name": c.METRICS, "containerPort": c.SCRAPED[component]}]


def metrics_service(
    resource_name: str,
    component: str,
    namespace: pulumi.Input[str],
    deployment: k8s.apps.v1.Deployment,
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.Service:
    """The Service at which a component is scraped.

    It goes by the port's name: pods of the component that have none, as those of a Job, are not
    behind it.
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
    """What a PersistentVolumeClaim asks for; `size` in MiB."""

    access: Literal["ReadWriteOnce", "ReadWriteMany"]
    size: int
    storage_class: pulumi.Input[str] | None
    """"" is none at all."""
    name: pulumi.Input[str] | None = None
    """PersistentVolume that it is bound to."""


def claim(
    resource_name: str,
    name: str,
    namespace: pulumi.Input[str],
    volume: Volume,
    opts: pulumi.ResourceOptions,
) -> k8s.core.v1.PersistentVolumeClaim:
    """A PersistentVolumeClaim with a fixed name."""
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


def mount(volume: str, path: str, *, read_only: bool = False) -> Spec:
    return {"name": volume, "mountPath": path, **({"readOnly": True} if read_only else {})}


def claim_volume(name: str, claim_name: pulumi.Input[str], *, read_only: bool = False) -> Spec:
    """A claim's volume; of a read-only one, Kubernetes leaves the owners of its files alone."""
    source: Spec = {"claimName": claim_name, **({"readOnly": True} if read_only else {})}
    return {"name": name, "persistentVolumeClaim": source}


def config_volume(
    name: str,
    config_map: pulumi.Input[str],
    keys: Sequence[str] | None = None,
    mode: int = 0o444,
) -> Spec:
    """A ConfigMap's entries as files, all of them or those of `keys`."""
    items = {"items": [{"key": key, "path": key} for key in keys]} if keys else {}
    return {"name": name, "configMap": {"name": config_map, "defaultMode": mode, **items}}


def secret_volume(name: str, secret: pulumi.Input[str], mode: int = 0o440) -> Spec:
    """A Secret's entries as files that, by default, root and the pod's fsGroup can read."""
    return {"name": name, "secret": {"secretName": secret, "defaultMode": mode}}


def disk_volume(name: str) -> Spec:
    """Node-local disk that goes with the pod."""
    return {"name": name, "emptyDir": {}}


def memory_volume(name: str, size: str) -> Spec:
    """Memory-backed files that go with the pod and count against its memory."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


# --- Users ---------------------------------------------------------------------------------------


def users_volume(accounts: pulumi.Input[str]) -> Spec:
    return config_volume("users", accounts, ["group", "passwd"])


def users_mount() -> Spec:
    """Mount that makes the configured users known."""
    return mount("users", c.EXTRAUSERS, read_only=True)
