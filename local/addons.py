"""Add-ons of every local cluster, as data: DNS and the StorageClass `shared`."""

import json
from typing import Any

from components.conventions import CLUSTER_DOMAIN, DOMAIN
from local.configuration import (
    API_PORT,
    DNS_READY_PORT,
    DNS_SERVICE,
    VOLUMES,
    node_name,
)

Object = dict[str, Any]

NAMESPACE = "kube-system"
STORAGE_CLASS = "shared"
PROVISIONER = f"{DOMAIN}/local-path"
DEPLOYMENTS = ("coredns", "local-path-provisioner")
# A new volume is writable for all users: the first pod that mounts it sets its owner.
_SETUP = '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n'
_TEARDOWN = '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n'


def objects(system_image: str, api_address: str) -> list[Object]:
    """Return the objects of all add-ons, in the order in which kubectl must apply them.

    The add-ons connect directly to the address of the API server. After a restart, they therefore
    do not wait until the Service `kubernetes` works.
    """
    api = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": api_address},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
    ]
    return [*_dns(system_image, api), *_storage(system_image, api)]


# --- DNS -----------------------------------------------------------------------------------------


def corefile() -> str:
    """Return CoreDNS's configuration.

    CoreDNS does not cache the cluster's own names, because a cached "no such name" would hide a new
    pod from its peers for 30 seconds. It answers queries for these names from memory anyway.
    """
    return f""".:53 {{
    errors
    ready :{DNS_READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        # Name endpoints by their pods: a pod gets one name in each Service, and its address
        # resolves to this name.
        endpoint_pod_names
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }}
    forward . /etc/resolv.conf
    cache 30 {{
        disable success {CLUSTER_DOMAIN}
        disable denial {CLUSTER_DOMAIN}
    }}
}}
"""


def _dns(image: str, environment: list[Object]) -> list[Object]:
    name = "coredns"
    labels = {"k8s-app": "kube-dns"}
    watched = [
        _rule([""], ["endpoints", "services", "pods", "namespaces"], ["list", "watch"]),
        _rule(["discovery.k8s.io"], ["endpointslices"], ["list", "watch"]),
    ]
    return [
        *_account(name, watched),
        _object("v1", "ConfigMap", name, data={"Corefile": corefile()}),
        _deployment(name, labels, _dns_pod(name, image, environment)),
        _object(
            "v1",
            "Service",
            "kube-dns",
            labels=labels | {"kubernetes.io/name": "CoreDNS"},
            spec={
                "clusterIP": str(DNS_SERVICE),
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        ),
    ]


def _dns_pod(name: str, image: str, environment: list[Object]) -> Object:
    return {
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        # Use the network of the first node. Docker's resolver, which forwards queries to the host's
        # name servers, answers only in a node's own network.
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/hostname": node_name(0)},
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": name,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/coredns", "-conf", "/etc/coredns/Corefile"],
                "env": [
                    *environment,
                    {"name": "GOMEMLIMIT", "value": "48MiB"},
                    {"name": "GOGC", "value": "50"},
                ],
                "ports": [
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                ],
                "readinessProbe": {
                    "httpGet": {"path": "/ready", "port": DNS_READY_PORT},
                    "periodSeconds": 2,
                },
                "resources": {
                    "requests": {"cpu": "20m", "memory": "32Mi"},
                    "limits": {"memory": "128Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }


# --- Volumes -------------------------------------------------------------------------------------


def _storage(image: str, environment: list[Object]) -> list[Object]:
    name = "local-path-provisioner"
    labels = {"app": name}
    helpers = [
        _rule(
            [""],
            ["pods"],
            ["create", "delete", "get", "list", "patch", "update", "watch"],
        )
    ]
    return [
        *_account(name, _STORAGE_RULES),
        _object("rbac.authorization.k8s.io/v1", "Role", name, rules=helpers),
        _object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            name,
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": name,
            },
            subjects=[{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        ),
        _object(
            "v1",
            "ConfigMap",
            name,
            data={
                "config.json": json.dumps({"sharedFileSystemPath": VOLUMES}),
                "setup": _SETUP,
                "teardown": _TEARDOWN,
                "helperPod.yaml": json.dumps(_helper_pod(image), sort_keys=True),
            },
        ),
        _deployment(name, labels, _provisioner_pod(name, image, environment)),
        _storage_class(),
    ]


def _helper_pod(image: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "volume-helper"},
        "spec": {
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "helper-pod",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
        },
    }


def _provisioner_pod(name: str, image: str, environment: list[Object]) -> Object:
    return {
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": name,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [
                    *("/bin/local-path-provisioner", "start"),
                    *("--config", "/etc/config/config.json"),
                    *("--provisioner-name", PROVISIONER),
                    *("--helper-image", image),
                    *("--configmap-name", name),
                    *("--service-account-name", name),
                ],
                "env": [
                    *environment,
                    {
                        "name": "POD_NAMESPACE",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
                    },
                    {"name": "GOMEMLIMIT", "value": "32MiB"},
                    {"name": "GOGC", "value": "50"},
                ],
                "resources": {
                    "requests": {"cpu": "10m", "memory": "24Mi"},
                    "limits": {"memory": "128Mi"},
                },
                "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }


def _storage_class() -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        # Bind a volume before a pod needs it: all nodes mount the same directory, so each node can
        # use any volume.
        "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Delete",
    }


# --- Parts ---------------------------------------------------------------------------------------


def _object(
    version: str,
    kind: str,
    name: str,
    labels: dict[str, str] | None = None,
    **body: Any,
) -> Object:
    metadata: Object = {"name": name, "namespace": NAMESPACE}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _deployment(name: str, labels: dict[str, str], pod: Object) -> Object:
    return _object(
        "apps/v1",
        "Deployment",
        name,
        labels=labels,
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    )


def _account(name: str, rules: list[Object]) -> list[Object]:
    """Return a service account with permissions in the whole cluster."""
    role = f"{DOMAIN}:{name}"
    group = "rbac.authorization.k8s.io"
    return [
        _object("v1", "ServiceAccount", name),
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": rules,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        },
    ]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


_STORAGE_RULES = [
    _rule(
        [""],
        ["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"],
        ["get", "list", "watch"],
    ),
    _rule(
        [""],
        ["persistentvolumes"],
        ["get", "list", "watch", "create", "patch", "update", "delete"],
    ),
    _rule([""], ["events"], ["create", "patch"]),
    _rule(["storage.k8s.io"], ["storageclasses"], ["get", "list", "watch"]),
]
