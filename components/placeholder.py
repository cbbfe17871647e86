"""A warm place for a controller that has to move: its images, and room for it, on another node."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods

_PRIORITY = -10
"""Below all pods that do not say otherwise; the lowest for which an autoscaler still makes room."""
_KEPT = ("name", "image", "imagePullPolicy", "securityContext", "resources")


@dataclass(frozen=True)
class PlaceholderArgs:
    namespace: pulumi.Input[str]
    images: pods.Images
    component: str
    """Label of the pod whose place is kept."""
    pod: pods.Spec
    """That pod."""


class Placeholder(pulumi.ComponentResource):
    """A pod that does nothing, as large as another, on another node, and gives way to it."""

    def __init__(
        self, name: str, args: PlaceholderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("placeholder", "Placeholder"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        yielding = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority",
            # Of the whole cluster, which may have other stacks.
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
                # Where there is no other node it waits for one, and nobody for it.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec={
                "replicas": 1,
                "selector": {"matchLabels": pods.labels(c.PLACEHOLDER)},
                "template": {
                    "metadata": {"labels": pods.labels(c.PLACEHOLDER)},
                    "spec": _pod(args, yielding.metadata.name),
                },
            },
            opts=child,
        )
        self.register_outputs({})


def _pod(args: PlaceholderArgs, priority_class: pulumi.Input[str]) -> pods.Spec:
    return {
        **pods.pod_defaults(args.images),
        **pods.apart_from(args.component),
        "priorityClassName": priority_class,
        # Who takes its place does not wait for it to go.
        "terminationGracePeriodSeconds": 0,
        "containers": [
            _idle(container) for container in (*args.pod["initContainers"], *args.pod["containers"])
        ],
    }


def _idle(container: pods.Spec) -> pods.Spec:
    """A container of the same image and size that does nothing."""
    kept = {key: value for key, value in container.items() if key in _KEPT}
    return {**kept, "command": ["sleep", "infinity"]}
