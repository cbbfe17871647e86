"""The key that all of Slurm's daemons and clients trust each other by."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components import conventions as c


@dataclass(frozen=True)
class MungeKeyArgs:
    namespace: pulumi.Input[str]


class MungeKey(pulumi.ComponentResource):
    """A random munge key, kept only in encrypted state and in one Kubernetes Secret."""

    secret: pulumi.Output[str]
    """Name of the Secret, whose one entry is `munge.key`."""

    def __init__(
        self, name: str, args: MungeKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("munge", "MungeKey"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # 1024 bits, as mungekey(8) makes by default.
        key = random.RandomBytes(f"{name}-bytes", length=128, opts=child)
        secret = k8s.core.v1.Secret(
            f"{name}-secret",
            metadata={"name": c.MUNGE_SECRET, "namespace": args.namespace},
            type="Opaque",
            data={"munge.key": key.base64},
            opts=child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})
