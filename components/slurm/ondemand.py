"""The agent that starts and stops the pods of nodes on demand; see agents/ondemand."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity import rights
from components.site import Site
from components.slurm import ondemandpolicy


@dataclass(frozen=True)
class OnDemandArgs:
    site: Site
    jwt_secret: pulumi.Input[str]
    rest_url: pulumi.Input[str]
    wanted: pulumi.Input[str]
    """Nodes on demand, in the format of agents/ondemand."""
    nodesets: Sequence[str]
    """Names of the nodesets on demand."""
    cost: str
    """Highest and lowest cost of the nodes for an hour. The text is empty if no node has a
    price."""


class OnDemand(pulumi.ComponentResource):
    """One pod with credentials for Kubernetes' API, and the Service through which slurmctld calls
    the pod.

    An account that may create any pod can read every Secret of the namespace. Admission policies
    therefore permit only pods that equal the PodTemplate of their nodeset.

    The policy that compares pods with templates applies through two kinds of bindings. A permanent
    binding selects all templates by a label. In addition, each nodeset has a binding that names the
    nodeset's template. Only this binding refuses a pod whose template is missing or lacks the
    label.

    If the settings have no nodesets on demand, only this policy and its permanent binding exist.
    They must stay because of a bug (kubernetes/kubernetes#133827): if no policy with a binding
    reads templates, the API server stops reading templates until it restarts. While the permanent
    binding exists, a deploy may safely create and delete the bindings of nodesets.
    """

    def __init__(
        self, name: str, args: OnDemandArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("ondemand", "OnDemand"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        permanent = _require_templates(name, args.site.namespace, child)
        if args.nodesets:
            after = pulumi.ResourceOptions(parent=self, depends_on=[permanent])
            self._run(name, args, _require_each(name, args, after))
        self.register_outputs({})

    def _run(
        self, name: str, args: OnDemandArgs, like_templates: Sequence[pulumi.Resource]
    ) -> None:
        child = pulumi.ResourceOptions(parent=self)
        wanted = pods.config_map(
            f"{name}-nodesets",
            c.ON_DEMAND_CONFIG,
            args.site.namespace,
            {c.NODES_FILE: args.wanted},
            child,
            {c.ANNOTATION_COST: args.cost} if args.cost else None,
        )
        # Also log the cost in a preview, which does not show the annotations of unchanged
        # resources.
        if args.cost and pulumi.runtime.is_dry_run():
            pulumi.log.info(f"{c.COST_LOGGED}{args.cost}")
        account = rights.account(name, c.ON_DEMAND, args.site.namespace, child)
        # Limit the account before it gets any rights. The account may create pods of a nodeset only
        # while a binding requires the nodeset's template. For this purpose, Pulumi creates the
        # binding before the policy that permits the pods, and deletes the binding after an update
        # of that policy.
        limited = _limit(
            name,
            account,
            args.nodesets,
            pulumi.ResourceOptions(parent=self, depends_on=like_templates),
        )
        granted = rights.grant(
            name,
            account,
            args.site.namespace,
            _rules(),
            pulumi.ResourceOptions(parent=self, depends_on=[limited]),
        )
        agent = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.ON_DEMAND, "namespace": args.site.namespace},
            spec=pods.workload(
                c.ON_DEMAND, _pod(args, account, wanted.metadata.name), **pods.ALONE
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[granted]),
        )
        port = pods.service_port("calls", c.ON_DEMAND_PORT)
        pods.service(f"{name}-service", c.ON_DEMAND, args.site.namespace, agent, port, child)


def _pod(args: OnDemandArgs, account: rights.Account, config: pulumi.Input[str]) -> pods.Spec:
    environment = {
        "REST_URL": args.rest_url,
        "JWT_KEY": c.JWT_KEY,
        "WANTED": f"{c.NODESETS}/{c.NODES_FILE}",
        "NAMESPACE": args.site.namespace,
        "PORT": str(c.ON_DEMAND_PORT),
    }
    mounted = [
        pods.mounted(pods.secret_volume("jwt", args.jwt_secret), c.JWT_KEY_DIR, read_only=True),
        pods.mounted(pods.config_volume("nodesets", config), c.NODESETS, read_only=True),
    ]
    return {
        **args.site.pod(c.ON_DEMAND),
        **rights.token(account),
        "securityContext": {"fsGroup": c.SLURM_ID},
        "containers": [
            {
                "name": c.ON_DEMAND,
                **pods.image("agents", args.site.images),
                "args": ["agents.ondemand"],
                "env": pods.environment(environment),
                "ports": [{"name": "calls", "containerPort": c.ON_DEMAND_PORT}],
                **pods.security(user=c.SLURM_ID),
                **args.site.requests(c.ON_DEMAND, "10m", "64Mi"),
                **pods.probes(pods.open_port(c.ON_DEMAND_PORT)),
                "volumeMounts": pods.mounts(mounted),
            }
        ],
        "volumes": pods.volumes(mounted),
    }


# --- Rights --------------------------------------------------------------------------------------


def _rules() -> list[pods.Spec]:
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "list"]},
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["list"]},
    ]


def _limit(
    name: str, account: rights.Account, nodesets: Sequence[str], opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Limit the account to pods of nodes on demand."""
    policy = rights.policy(
        {
            "matchConstraints": {
                "resourceRules": [rights.requests("", ["pods"], ["CREATE", "DELETE"])]
            },
            "matchConditions": [
                {
                    "name": "user",
                    "expression": pulumi.Output.concat(
                        "request.userInfo.username == '", account.user(), "'"
                    ),
                }
            ],
        },
        (ondemandpolicy.POD, ondemandpolicy.LABELS),
        ondemandpolicy.own_pods(nodesets),
    )
    # These objects have no namespace, so each stack of the cluster needs its own names.
    return rights.refuse(f"{name}-limits", account.unique_name(), policy, opts)


def _require_templates(
    name: str, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Refuse pods of nodes on demand that differ from their template. This applies to all accounts.

    If no template exists, Kubernetes refuses all requests that match the policy. So the policy must
    match only requests that create pods of nodes on demand.
    """
    policy = rights.policy(
        {
            "paramKind": {"apiVersion": "v1", "kind": "PodTemplate"},
            "matchConstraints": {
                "resourceRules": [rights.requests("", ["pods"], ["CREATE"])],
                "objectSelector": {"matchLabels": c.ON_DEMAND_LABELS},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
        },
        (
            *(ondemandpolicy.POD, ondemandpolicy.LABELS),
            *(ondemandpolicy.IS_OTHER, ondemandpolicy.TEMPLATE),
        ),
        ondemandpolicy.like_templates(),
    )
    binding = {
        "paramRef": {
            "namespace": namespace,
            "selector": {"matchLabels": c.ON_DEMAND_LABELS},
            "parameterNotFoundAction": "Deny",
        }
    }
    called = _policy_of_templates(namespace)
    return rights.refuse(f"{name}-templates", called, policy, opts, binding)


def _require_each(
    name: str, args: OnDemandArgs, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Require the template of each nodeset for the nodeset's pods.

    The permanent binding alone is not enough. It compares a pod with all templates that have the
    label. If the template of the pod's nodeset is missing or lacks the label, the other templates
    do not refuse the pod.
    """
    policy = _policy_of_templates(args.site.namespace)
    return [
        rights.bind(
            f"{name}-templates-{nodeset}-binding",
            pulumi.Output.concat(policy, "-", nodeset),
            policy,
            {
                "matchResources": {
                    "objectSelector": {"matchLabels": {c.LABEL_NODESET: nodeset}},
                },
                "paramRef": {
                    "namespace": args.site.namespace,
                    # A template has the name of its nodeset.
                    "name": nodeset,
                    "parameterNotFoundAction": "Deny",
                },
            },
            opts,
        )
        for nodeset in args.nodesets
    ]


def _policy_of_templates(namespace: pulumi.Input[str]) -> pulumi.Output[str]:
    """Return the policy's name. It contains the stack's namespace, because a policy itself belongs
    to no namespace."""
    return pulumi.Output.concat(namespace, f"-{c.ON_DEMAND}-templates")
