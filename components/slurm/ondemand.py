"""The agent that starts and stops the pods of nodes on demand; see agents/ondemand."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity import rights
from components.site import Site


@dataclass(frozen=True)
class OnDemandArgs:
    site: Site
    jwt_secret: pulumi.Input[str]
    rest_url: pulumi.Input[str]
    wanted: pulumi.Input[str]
    """Nodes on demand, in the format of agents/ondemand."""
    templates: Sequence[pulumi.Input[str]]
    """Pods of the nodesets on demand as JSON, known once their templates exist."""


class OnDemand(pulumi.ComponentResource):
    """One pod with credentials for Kubernetes' API, and its Service, which slurmctld calls.

    Who may create a pod can read every Secret of the namespace. An admission policy therefore
    permits only pods that have the images, Secrets and rights of the nodesets' own pods.
    """

    def __init__(
        self, name: str, args: OnDemandArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("ondemand", "OnDemand"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        wanted = pods.config_map(
            f"{name}-nodesets",
            c.ON_DEMAND_CONFIG,
            args.site.namespace,
            {c.NODES_FILE: args.wanted},
            child,
        )
        account = rights.account(name, c.ON_DEMAND, args.site.namespace, child)
        # Limit the account before it has any rights.
        limited = _limit(name, account, args, child)
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
        self.register_outputs({})


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
    name: str, account: rights.Account, args: OnDemandArgs, opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    user = pulumi.Output.concat("system:serviceaccount:", account.namespace, ":", account.name)
    # These objects have no namespace, and a cluster may contain two stacks.
    metadata = {"name": account.unique_name()}
    validations = pulumi.Output.all(*args.templates).apply(
        lambda templates: [
            {"expression": text, "message": message}
            for text, message in validations_of([json.loads(one) for one in templates])
        ]
    )
    policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
        f"{name}-limits",
        metadata=metadata,
        spec={
            # Refuse a request if an expression fails.
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE", "DELETE"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "user",
                    "expression": pulumi.Output.concat("request.userInfo.username == '", user, "'"),
                }
            ],
            "variables": [{"name": name, "expression": text} for name, text in VARIABLES],
            "validations": validations,
        },
        opts=opts,
    )
    binding: pulumi.Resource = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
        f"{name}-limits-binding",
        metadata=metadata,
        spec={"policyName": policy.metadata.name, "validationActions": ["Deny"]},
        opts=opts,
    )
    return binding


VARIABLES = (
    ("pod", "request.operation == 'DELETE' ? oldObject : object"),
    (
        "containers",
        (
            "variables.pod.spec.containers + (has(variables.pod.spec.initContainers) ? "
            "variables.pod.spec.initContainers : [])"
        ),
    ),
    ("volumes", "has(variables.pod.spec.volumes) ? variables.pod.spec.volumes : []"),
)
"""Variables of the expressions of `validations_of`, each with its own expression in CEL."""
_NEW = "request.operation == 'DELETE' || "


def validations_of(templates: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield CEL expressions that must be true, each with the message of a refusal.

    A pod that is created must be made of the same parts as the templates' pods.
    """
    specs = [template["spec"] for template in templates]
    yield from _identity()
    yield from _container_rules([each for spec in specs for each in _containers(spec)])
    yield from _volume_rules([volume for spec in specs for volume in spec.get("volumes", ())])


def _identity() -> Iterator[tuple[str, str]]:
    label, component = _text(c.LABEL_ON_DEMAND), _text(c.LABEL_COMPONENT)
    yield (
        (
            f"has(variables.pod.metadata.labels) && {label} in variables.pod.metadata.labels"
            f" && {component} in variables.pod.metadata.labels"
            f" && variables.pod.metadata.labels[{component}] == {_text(c.WORKER)}"
        ),
        "only pods of nodes on demand may be created or deleted",
    )
    yield (
        (
            f"{_NEW}!(has(variables.pod.spec.automountServiceAccountToken) ? "
            "variables.pod.spec.automountServiceAccountToken : true)"
        ),
        "the pod may not have a credential for Kubernetes' API",
    )
    yield (
        (
            f"{_NEW}!has(variables.pod.spec.hostNetwork) && !has(variables.pod.spec.hostPID)"
            " && !has(variables.pod.spec.hostIPC)"
        ),
        "the pod may not use the machine's namespaces",
    )


def _container_rules(containers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    images = sorted({container["image"] for container in containers})
    yield (
        f"{_NEW}variables.containers.all(one, one.image in {_text(images)})",
        "the pod may have only images of the templates",
    )
    added = sorted({name for container in containers for name in _capabilities(container)})
    yield (
        (
            f"{_NEW}variables.containers.all(one, has(one.securityContext)"
            " && !(has(one.securityContext.privileged) && one.securityContext.privileged)"
            " && (!has(one.securityContext.capabilities)"
            " || !has(one.securityContext.capabilities.add)"
            f" || one.securityContext.capabilities.add.all(name, name in {_text(added)})))"
        ),
        "the pod may have only capabilities of the templates",
    )
    yield (
        (
            f"{_NEW}variables.containers.all(one, !has(one.envFrom) && (!has(one.env) || "
            "one.env.all(variable, !has(variable.valueFrom) || "
            "!has(variable.valueFrom.secretKeyRef))))"
        ),
        "the pod may not read Secrets into its environment",
    )


def _volume_rules(volumes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    secrets = _text(sorted(set(_secrets(volumes))))
    yield (
        (
            f"{_NEW}variables.volumes.all(one,"
            f" (!has(one.secret) || one.secret.secretName in {secrets})"
            " && (!has(one.projected) || one.projected.sources.all(source,"
            " !has(source.serviceAccountToken)"
            f" && (!has(source.secret) || source.secret.name in {secrets}))))"
        ),
        "the pod may have only Secrets of the templates",
    )
    paths = sorted({v["hostPath"]["path"] for v in volumes if "hostPath" in v})
    yield (
        (
            f"{_NEW}variables.volumes.all(one, !has(one.hostPath)"
            f" || one.hostPath.path in {_text(paths)})"
        ),
        "the pod may have only folders of the templates from its machine",
    )


def _containers(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (*spec["containers"], *spec.get("initContainers", ()))


def _secrets(volumes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names of the Secrets in these volumes."""
    for volume in volumes:
        if "secret" in volume:
            yield volume["secret"]["secretName"]
        for source in volume.get("projected", {}).get("sources", ()):
            if "secret" in source:
                yield source["secret"]["name"]


def _capabilities(container: Mapping[str, Any]) -> Iterable[str]:
    added: Iterable[str] = (
        container.get("securityContext", {}).get("capabilities", {}).get("add", ())
    )
    return added


def _text(value: object) -> str:
    """Render strings, or lists of strings, in CEL, which accepts JSON."""
    return json.dumps(value)
