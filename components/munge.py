"""The key that all of Slurm's daemons and clients trust each other by."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components import conventions as c


@dataclass(frozen=True)
class MungeKeyArgs:
    namespace: pulumi.Input[str]
    rotations: Sequence[datetime]
    """Moments from which a further key counts."""


class MungeKey(pulumi.ComponentResource):
    """Random munge keys, kept only in encrypted state and in one Kubernetes Secret.

    Munge knows one key at a time. So that all pods change it in the same second, each gets the next
    one beforehand, with the moment from which it counts.
    """

    secret: pulumi.Output[str]
    """Name of the Secret. Its entries are keys, named by the Unix time from which each counts; the
    first one's name is `0`."""

    def __init__(
        self, name: str, args: MungeKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("munge", "MungeKey"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        moments = {0: f"{name}-password"} | {
            (since := int(moment.timestamp())): f"{name}-password-{since}"
            for moment in args.rotations
        }
        secret = k8s.core.v1.Secret(
            f"{name}-secret",
            metadata={"name": c.MUNGE_SECRET, "namespace": args.namespace},
            type="Opaque",
            # munged takes 32 to 1024 bytes as its key; 128 letters and digits hold 762 random bits.
            # No RandomBytes: its id is the value itself, and ids stand in the state in plain.
            string_data={
                str(since): random.RandomPassword(
                    resource, length=128, special=False, opts=child
                ).result
                for since, resource in sorted(moments.items())
            },
            opts=child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})
