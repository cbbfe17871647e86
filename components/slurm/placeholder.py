"""The placeholder: a pod that reserves a place for slurmctld on another Kubernetes node, and pulls
slurmctld's images there."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.site import Site

_PRIORITY = -10
"""Priority of the placeholder. It is lower than the priority of all other pods. It is not even
lower, because cluster-autoscaler adds no nodes for pods with a priority below -10 (its default)."""
_KEPT = ("name", "image", "imagePullPolicy", "securityContext", "resources")


@dataclass(frozen=True)
class PlaceholderArgs:
    namespace: pulumi.Input[str]
    site: Site
    component: str
    """Component whose pod gets the reserved place."""
    pod: pods.Spec
    """Spec of that pod."""


class Placeholder(pulumi.ComponentResource):
    """An idle pod with the images and requests of another pod. The other pod can preempt it."""

    def __init__(
        self, name: str, args: PlaceholderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("placeholder", "Placeholder"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        yielding = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority",
            # PriorityClasses have no namespace, so each stack of the cluster needs its own name.
            metadata={"name": pulumi.Output.concat(args.namespace, "-", c.PLACEHOLDER)},
            description="Placeholders, which all other pods may preempt.",
            value=_PRIORITY,
            preemption_policy="Never",
            opts=child,
        )
        k8s.apps.v1.Deployment(
            f"{name}-pod",
            metadata={
                "name": c.PLACEHOLDER,
                "namespace": args.namespace,
                # Do not wait for the pod: if the cluster has no other Kubernetes node, it stays
                # pending.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec=pods.workload(c.PLACEHOLDER, _pod(args, yielding.metadata.name), replicas=1),
            opts=child,
        )
        self.register_outputs({})


def _pod(args: PlaceholderArgs, priority_class: pulumi.Input[str]) -> pods.Spec:
    return {
        **args.site.pod(args.component),
        **pods.apart_from(args.component),
        "priorityClassName": priority_class,
        # Kill the placeholder at once, so that the pod that takes its place does not have to wait.
        "terminationGracePeriodSeconds": 0,
        "containers": [
            _idle(container) for container in (*args.pod["initContainers"], *args.pod["containers"])
        ],
    }


def _idle(container: pods.Spec) -> pods.Spec:
    """Return an idle container with the same image and resources."""
    kept = {key: value for key, value in container.items() if key in _KEPT}
    return {**kept, "command": ["sleep", "infinity"]}
