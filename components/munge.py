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
        # munged takes any 32 to 1024 bytes as its key; 128 letters and digits hold 762 random bits.
        # No RandomBytes: its id is the value itself, and ids stand in the state in plain.
        key = random.RandomPassword(f"{name}-password", length=128, special=False, opts=child)
        secret = k8s.core.v1.Secret(
            f"{name}-secret",
            metadata={"name": c.MUNGE_SECRET, "namespace": args.namespace},
            type="Opaque",
            string_data={"munge.key": key.result},
            opts=child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})
