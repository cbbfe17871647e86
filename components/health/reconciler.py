"""The pods of the reconciler, which repairs nodes, with their rights and the limits of these
rights; see agents/reconciler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.health import admission
from components.identity import rights
from components.settings import Reconciler as ReconcilerSettings
from components.site import Site

_LAST_LOOK = 120
"""Seconds that each try of the Job gets for its last check, after the wait of `rollout` seconds. In
this check, the reconciler queries slurmrestd for at most 90 seconds."""
_TRIES = 3
_REPLACE = "/etc/slurmstack/replace"
"""Mount point of the Secret for the command that replaces a machine; see docs/reconciler.md."""


@dataclass(frozen=True)
class ReconcilerArgs:
    site: Site
    jwt_secret: pulumi.Input[str]
    rest_url: pulumi.Input[str]
    settings: ReconcilerSettings
    writes_topology: bool
    """Whether labels of machines define Slurm's topology. The reconciler then writes
    topology.conf."""
    keeps_machines: bool
    """Whether any nodeset has the setting keep_machine, so that a node's new pod starts on the
    machine of its last pod."""
    wanted: pulumi.Input[str]
    """Wanted nodes, in the format of agents/reconciler."""
    machines: Sequence[Mapping[str, str]]
    """For each nodeset, the labels of its Kubernetes nodes that begin with `slurmstack.dev/`."""
    digests: Sequence[pulumi.Input[str]]
    """Digests of everything else that nodes depend on. If a digest changes, the Job that checks the
    nodes at the end of a deploy runs again."""


class Reconciler(pulumi.ComponentResource):
    """A permanent pod that checks and repairs nodes, and a Job that does the same at the end of a
    deploy.

    The pod is permanent, because a start takes longer than a check. The pod and the Job have
    credentials for Kubernetes' API. An admission policy limits their rights to pods of nodesets,
    and to those fields of Nodes that belong to this project. If a list of repairs has the step
    `reboot`, each Kubernetes node also runs a rebooter, a pod that has the right to read Nodes.
    """

    report: pulumi.Output[str]
    """State of the nodes after the last deploy that affected them."""

    def __init__(
        self, name: str, args: ReconcilerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("reconciler", "Reconciler"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        wanted = pods.config_map(
            f"{name}-nodesets",
            c.NODESETS_CONFIG,
            args.site.namespace,
            {c.NODES_FILE: args.wanted},
            child,
        )
        written = _written(name, args.site.namespace, child)
        account = rights.account(name, c.RECONCILER, args.site.namespace, child)
        # Limit the account before it has any rights.
        limited = _limit(name, account, args, child)
        after_limits = pulumi.ResourceOptions(parent=self, depends_on=[limited])
        granted = [
            rights.grant(name, account, args.site.namespace, _rules(args), after_limits),
            rights.grant_everywhere(name, account, _cluster_rules(args.settings), after_limits),
        ]
        config = wanted.metadata.name
        pod = _pod(args, account, config, f"apps/v1 Deployment {c.RECONCILER}", scraped=True)
        agent = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.RECONCILER, "namespace": args.site.namespace},
            # Two reconcilers must never run at the same time.
            spec=pods.workload(c.RECONCILER, pod, **pods.ALONE),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*granted, *written]),
        )
        pods.metrics_service(f"{name}-service", c.RECONCILER, args.site.namespace, agent, child)
        after_deploy = k8s.batch.v1.Job(
            f"{name}-after-deploy",
            # The name is fixed, because the Job's pod may annotate only this Job.
            metadata={
                "name": c.AFTER_DEPLOY,
                "namespace": args.site.namespace,
                "labels": pods.labels(c.RECONCILER),
            },
            spec=_after_deploy(args, account, config),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[agent],
                delete_before_replace=True,
                # Let Pulumi wait longer than the Job's own time limit, so that Kubernetes can
                # report why the Job failed.
                custom_timeouts=pulumi.CustomTimeouts(create=f"{_deadline(args.settings) + 60}s"),
            ),
        )
        if "reboot" in args.settings.steps():
            _rebooter(args.site.named(c.REBOOTER), args, child)
        self.report = after_deploy.metadata.apply(
            lambda meta: (meta.annotations or {}).get(c.ANNOTATION_REPORT, "")
        )
        self.register_outputs({"report": self.report})


def _written(
    name: str, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Create the objects whose content only the reconciler writes.

    A PodDisruptionBudget without content selects no pods.
    """
    return [
        k8s.core.v1.ConfigMap(
            f"{name}-memory",
            metadata={"name": c.MEMORY_CONFIG, "namespace": namespace},
            opts=opts,
        ),
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-busy-nodes",
            metadata={"name": c.BUSY_NODES, "namespace": namespace},
            opts=opts,
        ),
    ]


# --- Pods ----------------------------------------------------------------------------------------


def _pod(
    args: ReconcilerArgs,
    account: rights.Account,
    config: pulumi.Input[str],
    owner: str,
    *options: str,
    scraped: bool = False,
) -> pods.Spec:
    environment = {
        "REST_URL": args.rest_url,
        "JWT_KEY": c.JWT_KEY,
        "WANTED": f"{c.NODESETS}/{c.NODES_FILE}",
        "NAMESPACE": args.site.namespace,
        "MEMORY": c.MEMORY_CONFIG,
        "TOPOLOGY": c.TOPOLOGY_CONFIG,
        "BUDGET": c.BUSY_NODES,
        "OWNER": owner,
        **({"PORT": str(c.RECONCILER_PORT)} if scraped else {}),
    }
    mounted = [
        pods.mounted(pods.secret_volume("jwt", args.jwt_secret), c.JWT_KEY_DIR, read_only=True),
        pods.mounted(pods.config_volume("nodesets", config), c.NODESETS, read_only=True),
    ]
    if secret := args.settings.replace_secret:
        mounted.append(
            pods.mounted(pods.secret_volume("replace", secret), _REPLACE, read_only=True)
        )
    return {
        **args.site.pod(c.RECONCILER),
        **rights.token(account),
        "securityContext": {"fsGroup": c.SLURM_ID},
        "containers": [
            {
                "name": "reconciler",
                **pods.image("agents", args.site.images),
                "args": ["agents.reconciler", *options],
                "env": pods.environment(environment),
                **({"ports": pods.metrics_port(c.RECONCILER)} if scraped else {}),
                **pods.security(user=c.SLURM_ID),
                **args.site.requests(c.RECONCILER, "10m", "64Mi"),
                # If the container fails, the deploy shows the last lines of the container's log.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": pods.mounts(mounted),
            }
        ],
        "volumes": pods.volumes(mounted),
    }


def _deadline(settings: ReconcilerSettings) -> int:
    """Return the time limit of the Job in seconds."""
    return settings.rollout + _TRIES * _LAST_LOOK


def _after_deploy(
    args: ReconcilerArgs, account: rights.Account, config: pulumi.Input[str]
) -> pods.Spec:
    digests = pulumi.Output.all(args.wanted, *args.digests).apply(
        lambda found: c.checksum({str(index): str(each) for index, each in enumerate(found)})
    )
    pod = _pod(args, account, config, f"batch/v1 Job {c.AFTER_DEPLOY}", "--after-deploy")
    return {
        "backoffLimit": _TRIES,
        "activeDeadlineSeconds": _deadline(args.settings),
        "template": pods.template(
            c.RECONCILER,
            {**pod, "restartPolicy": "Never"},
            {c.ANNOTATION_CHECKSUM: digests},
        ),
    }


def _rebooter(name: str, args: ReconcilerArgs, opts: pulumi.ResourceOptions) -> None:
    account = rights.account(name, c.REBOOTER, args.site.namespace, opts)
    reads = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    rights.grant_everywhere(name, account, reads, opts)
    k8s.apps.v1.DaemonSet(
        f"{name}-agent",
        metadata={
            "name": c.REBOOTER,
            "namespace": args.site.namespace,
            # Do not wait for the pods: those on Kubernetes nodes that are down never become ready.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        spec=pods.workload(
            c.REBOOTER,
            {
                **pods.pod_defaults(args.site.images),
                **rights.token(account),
                # Use the machine's PID namespace: in any other, reboot(2) does not reboot the
                # machine.
                "hostPID": True,
                # Tolerate all taints, because machines that need a reboot have taints.
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": c.REBOOTER,
                        **pods.image("agents", args.site.images),
                        "args": ["agents.reconciler.rebooter"],
                        "env": [pods.field("MACHINE", "spec.nodeName")],
                        **pods.security("SYS_BOOT", user=0),
                        **pods.requests("5m", "32Mi"),
                    }
                ],
            },
        ),
        opts=opts,
    )


# --- Rights --------------------------------------------------------------------------------------


def _rules(args: ReconcilerArgs) -> list[pods.Spec]:
    """Return the reconciler's rights to objects in its namespace."""
    written = [c.MEMORY_CONFIG, *([c.TOPOLOGY_CONFIG] if args.writes_topology else [])]
    return [
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": ["delete", "list", *(["patch"] if args.keeps_machines else [])],
        },
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": written,
            "verbs": ["get", "patch"],
        },
        {
            "apiGroups": ["policy"],
            "resources": ["poddisruptionbudgets"],
            "resourceNames": [c.BUSY_NODES],
            "verbs": ["get", "patch"],
        },
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "resourceNames": [c.AFTER_DEPLOY],
            "verbs": ["patch"],
        },
    ]


def _deletes(settings: ReconcilerSettings) -> bool:
    """Return whether the reconciler itself deletes Nodes. It does so for the repair `replace`, if
    no command replaces machines."""
    return "replace" in settings.steps() and not settings.replace


def _cluster_rules(settings: ReconcilerSettings) -> list[pods.Spec]:
    """Return the reconciler's rights to Nodes, which belong to no namespace."""
    verbs = [*(["delete"] if _deletes(settings) else []), "get", "list", "patch"]
    return [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]


def _limit(
    name: str, account: rights.Account, args: ReconcilerArgs, opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Limit the account to the fields of Nodes that agents/reconciler changes."""
    limits = admission.Limits(
        reboots="reboot" in args.settings.steps(),
        deletes=_deletes(args.settings),
        machines=tuple(args.machines),
    )
    # These objects have no namespace, so each stack of the cluster needs its own names.
    return rights.refuse(
        f"{name}-limits", account.unique_name(), admission.policy(account.user(), limits), opts
    )
