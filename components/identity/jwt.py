"""The key that signs tokens for Slurm's REST API."""

from dataclasses import dataclass
from pathlib import PurePosixPath

import pulumi
import pulumi_random as random

from components import conventions as c
from components import pods


@dataclass(frozen=True)
class JwtKeyArgs:
    namespace: pulumi.Input[str]


class JwtKey(pulumi.ComponentResource):
    """A random key, which exists only in Pulumi's encrypted state and in one Kubernetes Secret.

    A client that has this key can act as any Slurm user.
    """

    secret: pulumi.Output[str]
    """Name of the Secret."""

    def __init__(
        self, name: str, args: JwtKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("jwt", "JwtKey"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # 64 letters and digits have more random bits than HS256, the signature of the tokens, uses.
        # Do not use RandomBytes, for the reason given in auth.py.
        key = random.RandomPassword(f"{name}-password", length=64, special=False, opts=child)
        secret = pods.secret(
            f"{name}-secret",
            c.JWT_SECRET,
            args.namespace,
            {PurePosixPath(c.JWT_KEY).name: key.result},
            child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})
