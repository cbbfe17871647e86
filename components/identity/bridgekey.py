"""The key with which nodes sign their questions to the bridge (agents/bridge/proof.py)."""

from dataclasses import dataclass
from pathlib import PurePosixPath

import pulumi
import pulumi_random as random

from components import conventions as c
from components import pods


@dataclass(frozen=True)
class BridgeKeyArgs:
    namespace: pulumi.Input[str]


class BridgeKey(pulumi.ComponentResource):
    """A random key, which exists only in Pulumi's encrypted state and in one Kubernetes Secret."""

    mounted: pods.Mounted
    """Volume with the key, and its mount in slurmd's container and in the bridge's."""

    def __init__(
        self, name: str, args: BridgeKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("bridgekey", "BridgeKey"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # Do not use RandomBytes, for the reason given in auth.py.
        key = random.RandomPassword(f"{name}-password", length=64, special=False, opts=child)
        secret = pods.secret(
            f"{name}-secret",
            c.BRIDGE_KEY_SECRET,
            args.namespace,
            {PurePosixPath(c.BRIDGE_KEY).name: key.result},
            child,
        )
        volume = pods.secret_volume("bridge-key", secret.metadata.name)
        self.mounted = pods.mounted(volume, c.BRIDGE_KEY_DIR, read_only=True)
        self.register_outputs({})
