"""Keeps what Slurm remembers in agreement with what the settings ask for."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods


@dataclass(frozen=True)
class ReconcilerArgs:
    namespace: pulumi.Input[str]
    images: pods.Images
    jwt_secret: pulumi.Input[str]
    rest_url: pulumi.Input[str]
    nodesets: Mapping[str, int]
    """Number of nodes by nodeset."""


class Reconciler(pulumi.ComponentResource):
    """One pod that looks after node records; see agents/reconciler."""

    def __init__(
        self, name: str, args: ReconcilerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("reconciler", "Reconciler"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        nodesets = k8s.core.v1.ConfigMap(
            f"{name}-nodesets",
            metadata={"name": c.NODESETS_CONFIG, "namespace": args.namespace},
            data={nodeset: str(replicas) for nodeset, replicas in sorted(args.nodesets.items())}
            or None,
            opts=child,
        )
        k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.RECONCILER, "namespace": args.namespace},
            spec={
                "replicas": 1,
                # Never two at a time.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": pods.labels(c.RECONCILER)},
                "template": {
                    "metadata": {"labels": pods.labels(c.RECONCILER)},
                    "spec": {
                        **pods.pod_defaults(args.images),
                        "securityContext": {"fsGroup": c.SLURM_ID},
                        "containers": [_agent(args)],
                        "volumes": [
                            pods.secret_volume("jwt", args.jwt_secret),
                            pods.config_volume("nodesets", nodesets.metadata.name),
                        ],
                    },
                },
            },
            opts=child,
        )
        self.register_outputs({})


def _agent(args: ReconcilerArgs) -> pods.Spec:
    return {
        "name": "reconciler",
        **pods.image("agents", args.images),
        "args": ["agents.reconciler"],
        "env": [
            {"name": "REST_URL", "value": args.rest_url},
            {"name": "JWT_KEY", "value": c.JWT_KEY},
            {"name": "NODESETS", "value": c.NODESETS},
        ],
        **pods.security(user=c.SLURM_ID),
        **pods.requests("10m", "48Mi"),
        "volumeMounts": [
            pods.mount("jwt", c.JWT_KEY_DIR, read_only=True),
            pods.mount("nodesets", c.NODESETS, read_only=True),
        ],
    }
