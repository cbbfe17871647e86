"""The bridge, with which Slurm schedules pods of Kubernetes; see agents/bridge."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from agents import labels
from agents.bridge.wanted import Rule
from components import conventions as c
from components import pods
from components.identity import rights
from components.identity.certificates import certificate
from components.identity.hostkeys import host_key
from components.settings.bridge import Bridge as BridgeSettings
from components.site import Site
from components.slurm import bridgepolicy

_CERTIFICATE = "/etc/slurmstack/certificate"
"""Folder with the certificate of the webhook."""


@dataclass(frozen=True)
class BridgeArgs:
    site: Site
    jwt_secret: pulumi.Input[str]
    key: pods.Mounted
    """Volume with the key with which nodes sign their questions."""
    rest_url: pulumi.Input[str]
    settings: BridgeSettings
    rules: Sequence[Rule]
    """Rules by which pods act as Slurm users."""
    stack_namespace: str
    """Namespace of the stack, in the form in which admission policies need it."""
    wanted: pulumi.Input[str]
    """Settings in the format of agents/bridge."""


class Bridge(pulumi.ComponentResource):
    """Pods with credentials for Kubernetes' API, and the Service that nodes call.

    The bridge reads pods of all namespaces, because it must know what is free on each machine. It
    changes only pods that Slurm schedules, and only in the namespaces of the settings.
    """

    def __init__(
        self, name: str, args: BridgeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("bridge", "Bridge"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        wanted = pods.config_map(
            f"{name}-settings",
            c.BRIDGE_CONFIG,
            args.site.namespace,
            {c.NODES_FILE: args.wanted},
            child,
        )
        account = rights.account(name, c.BRIDGE, args.site.namespace, child)
        # Limit the account, and protect the pods, before the account has any rights.
        limited = [_limit(name, account, args, child), _protect(name, account, args, child)]
        after_limits = pulumi.ResourceOptions(parent=self, depends_on=limited)
        granted = _grant(name, account, args, after_limits)
        # 64 letters and digits have more random bits than the key. Do not use RandomBytes, for the
        # reason given in components/identity/auth.py.
        seed = random.RandomPassword(f"{name}-seed", length=64, special=False, opts=child)
        proof = seed.result.apply(lambda text: certificate(text, _host(args)))
        secret = pods.secret(
            f"{name}-certificate",
            c.BRIDGE_CERTIFICATE_SECRET,
            args.site.namespace,
            {"tls.crt": proof, "tls.key": seed.result.apply(host_key)},
            child,
            "kubernetes.io/tls",
        )
        agent = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.BRIDGE, "namespace": args.site.namespace},
            spec=pods.workload(
                c.BRIDGE,
                _pod(args, account, wanted.metadata.name, secret.metadata.name),
                replicas=args.settings.replicas,
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=granted),
        )
        ports = [
            *pods.service_port("nodes", c.BRIDGE_PORT),
            *pods.service_port("webhook", c.BRIDGE_WEBHOOK_PORT),
        ]
        service = pods.service(
            f"{name}-service", c.BRIDGE, args.site.namespace, agent, ports, child
        )
        _complete(
            name,
            account,
            args,
            proof,
            pulumi.ResourceOptions(parent=self, depends_on=[agent, service]),
        )
        self.register_outputs({})


def _host(args: BridgeArgs) -> str:
    """Return the name by which the API server calls the bridge."""
    return f"{c.BRIDGE}.{args.stack_namespace}.svc"


def _pod(
    args: BridgeArgs,
    account: rights.Account,
    config: pulumi.Input[str],
    certificate: pulumi.Input[str],
) -> pods.Spec:
    environment = {
        "REST_URL": args.rest_url,
        "JWT_KEY": c.JWT_KEY,
        "WANTED": f"{c.NODESETS}/{c.NODES_FILE}",
        "NAMESPACE": args.site.namespace,
        "PORT": str(c.BRIDGE_PORT),
        "METRICS_PORT": str(c.BRIDGE_METRICS_PORT),
        "WEBHOOK_PORT": str(c.BRIDGE_WEBHOOK_PORT),
        "CERTIFICATE": _CERTIFICATE,
    }
    mounted = [
        args.key,
        pods.mounted(pods.secret_volume("jwt", args.jwt_secret), c.JWT_KEY_DIR, read_only=True),
        pods.mounted(pods.config_volume("settings", config), c.NODESETS, read_only=True),
        pods.mounted(pods.secret_volume("certificate", certificate), _CERTIFICATE, read_only=True),
    ]
    return {
        **args.site.pod(c.BRIDGE),
        **rights.token(account),
        "securityContext": {"fsGroup": c.SLURM_ID},
        "containers": [
            {
                "name": c.BRIDGE,
                **pods.image("agents", args.site.images),
                "args": ["agents.bridge"],
                "env": [*pods.environment(environment), pods.field("POD_NAME", "metadata.name")],
                "ports": [
                    {"name": "nodes", "containerPort": c.BRIDGE_PORT},
                    *pods.metrics_port(c.BRIDGE),
                    {"name": "webhook", "containerPort": c.BRIDGE_WEBHOOK_PORT},
                ],
                **pods.security(user=c.SLURM_ID),
                **args.site.requests(c.BRIDGE, "10m", "64Mi"),
                # A process that hangs still has open ports.
                **pods.probes(pods.page("/live", c.BRIDGE_PORT)),
                "volumeMounts": pods.mounts(mounted),
            }
        ],
        "volumes": pods.volumes(mounted),
    }


def _complete(
    name: str,
    account: rights.Account,
    args: BridgeArgs,
    proof: pulumi.Output[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let the bridge complete new pods; see agents/bridge/admission.py.

    While no bridge answers, Kubernetes refuses these pods: without the bridge, they would run
    without Slurm's knowledge, or without limits.
    """
    namespaces = sorted({user.namespace for user in args.settings.users})
    ours = bridgepolicy.is_completed(args.settings.scheduler, args.settings.namespaces)
    webhook = {
        "name": f"{c.BRIDGE}.{labels.DOMAIN}",
        "clientConfig": {
            "service": {
                "namespace": args.site.namespace,
                "name": c.BRIDGE,
                "port": c.BRIDGE_WEBHOOK_PORT,
                "path": "/pods",
            },
            "caBundle": proof.apply(lambda text: base64.b64encode(text.encode()).decode()),
        },
        "rules": [rights.requests("", ["pods"], ["CREATE"])],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
            ]
        },
        "matchConditions": [{"name": "pods", "expression": ours}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
    }
    k8s.admissionregistration.v1.MutatingWebhookConfiguration(
        f"{name}-webhook",
        metadata={"name": account.unique_name("pods")},
        webhooks=[webhook],
        opts=opts,
    )


# --- Rights --------------------------------------------------------------------------------------

_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
_OF_STACK: list[pods.Spec] = [
    {**_LEASES, "verbs": ["create"]},
    {**_LEASES, "resourceNames": [labels.BRIDGE_LEASE], "verbs": ["delete", "get", "update"]},
]
"""Rights in the stack's namespace: to elect the pod that acts."""
_OF_PODS: list[pods.Spec] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "patch"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events", "pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["patch"]},
]
"""Rights in the namespaces of pods."""
_READS = ["get", "list", "watch"]
_EVERYWHERE: list[pods.Spec] = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": _READS},
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims", "persistentvolumes"],
        "verbs": _READS,
    },
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": _READS},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _READS},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": _READS},
    {"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": _READS},
    {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": _READS},
]
"""Rights in all namespaces: to know the pods' gangs, and what is free on each machine."""


def _grant(
    name: str, account: rights.Account, args: BridgeArgs, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    namespaces = sorted({user.namespace for user in args.settings.users})
    return [
        rights.grant(name, account, args.site.namespace, _OF_STACK, opts),
        rights.grant_everywhere(name, account, _EVERYWHERE, opts),
        *(
            rights.grant(f"{name}-{namespace}", account, namespace, _OF_PODS, opts, "pods")
            for namespace in namespaces
        ),
    ]


def _limit(
    name: str, account: rights.Account, args: BridgeArgs, opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Limit the bridge to pods that Slurm schedules."""
    changed = ["pods", "pods/status", "persistentvolumeclaims"]
    policy = rights.policy(
        {
            "matchConstraints": {
                "resourceRules": [rights.requests("", changed, ["UPDATE", "DELETE"])]
            },
            "matchConditions": [{"name": "user", "expression": _is_user(account, "==")}],
        },
        bridgepolicy.VARIABLES,
        bridgepolicy.of_bridge(args.settings.scheduler, args.stack_namespace),
    )
    return rights.refuse(f"{name}-limits", account.unique_name(), policy, opts)


def _protect(
    name: str, account: rights.Account, args: BridgeArgs, opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Refuse pods that may not act as a Slurm user, and changes that only the bridge may make."""
    ours = bridgepolicy.concerns(args.settings.scheduler, args.stack_namespace)
    changed = ["pods", "pods/resize", "pods/status"]
    policy = rights.policy(
        {
            "matchConstraints": {
                "resourceRules": [rights.requests("", changed, ["CREATE", "UPDATE"])]
            },
            "matchConditions": [
                {"name": "pods", "expression": ours},
                {"name": "user", "expression": _is_user(account, "!=")},
            ],
        },
        (*bridgepolicy.VARIABLES, *bridgepolicy.users(args.rules)),
        bridgepolicy.of_pods(),
    )
    return rights.refuse(f"{name}-pods", account.unique_name("pods"), policy, opts)


def _is_user(account: rights.Account, comparison: str) -> pulumi.Output[str]:
    return pulumi.Output.concat(f"request.userInfo.username {comparison} '", account.user(), "'")
