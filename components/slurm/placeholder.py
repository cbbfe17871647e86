"""Images and room for the controller on another node, so that it can move there at once."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods

_PRIORITY = -10
"""Below the default of pods; the lowest priority for which an autoscaler still adds nodes."""
_KEPT = ("name", "image", "imagePullPolicy", "securityContext", "resources")


@dataclass(frozen=True)
class PlaceholderArgs:
    namespace: pulumi.Input[str]
    images: pods.Images
    component: str
    """Label of the pod for which it keeps a place."""
    pod: pods.Spec
    """Spec of that pod."""


class Placeholder(pulumi.ComponentResource):
    """An idle pod as large as another pod, on another node. The other pod can preempt it."""

    def __init__(
        self, name: str, args: PlaceholderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("placeholder", "Placeholder"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        yielding = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority",
            # PriorityClasses have no namespace, and the cluster may have other stacks.
            metadata={"name": pulumi.Output.concat(args.namespace, "-", c.PLACEHOLDER)},
            description="Pods that keep a place for others, and make room for any.",
            value=_PRIORITY,
            preemption_policy="Never",
            opts=child,
        )
        k8s.apps.v1.Deployment(
            f"{name}-pod",
            metadata={
                "name": c.PLACEHOLDER,
                "namespace": args.namespace,
                # Without another node, the pod stays pending. The deploy must not wait for it.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec=pods.workload(c.PLACEHOLDER, _pod(args, yielding.metadata.name), replicas=1),
            opts=child,
        )
        self.register_outputs({})


def _pod(args: PlaceholderArgs, priority_class: pulumi.Input[str]) -> pods.Spec:
    return {
        **pods.pod_defaults(args.images),
        **pods.apart_from(args.component),
        "priorityClassName": priority_class,
        # The pod that takes its place must not wait for its end.
        "terminationGracePeriodSeconds": 0,
        "containers": [
            _idle(container) for container in (*args.pod["initContainers"], *args.pod["containers"])
        ],
    }


def _idle(container: pods.Spec) -> pods.Spec:
    """Return an idle container of the same image and size."""
    kept = {key: value for key, value in container.items() if key in _KEPT}
    return {**kept, "command": ["sleep", "infinity"]}
