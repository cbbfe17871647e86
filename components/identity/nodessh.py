"""Configuration of `ssh <node>` on login nodes and in jobs. The command opens a shell in one of the
user's jobs on that node."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_random as random

from components import conventions as c
from components import pods
from components.identity.hostkeys import host_key, public_host_key


def ssh_config(nodesets: Iterable[str]) -> str:
    """Render ssh_config(5) for the nodes of the nodesets; "" if there are no nodesets."""
    patterns = [f"{nodeset}-*" for nodeset in sorted(nodesets)]
    if not patterns:
        return ""
    options = {
        "ProxyCommand": f"{c.PROGRAMS}/to-node %h %r",
        "IdentityFile": f"{c.NODE_SSH}/key",
        # Ignore users' own known_hosts: other sites may have hosts with the same names.
        "GlobalKnownHostsFile": f"{c.NODE_SSH}/known_hosts",
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
    }
    # Match only names without a dot. Otherwise, a pattern such as `gpu-*` would also match the name
    # `gpu-1.example.org` of a host at another site.
    lines = [f"Host {' '.join(patterns)} !*.*", *(f"  {k} {v}" for k, v in options.items())]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class NodeSshArgs:
    namespace: pulumi.Input[str]
    nodesets: tuple[str, ...]
    """Names of the nodesets whose nodes users can reach."""


class NodeSsh(pulumi.ComponentResource):
    """A Secret with the files of ssh and sshd for login nodes and workers.

    The key in the Secret protects nothing, and every user can read it. It exists only because SSH
    requires a key on both sides. Access is safe without a secret key: the connection runs in a job
    step (images/base/to-node), and Slurm accepts steps only from the job's user.
    """

    secret: pulumi.Output[str]
    """Name of the Secret."""

    def __init__(
        self, name: str, args: NodeSshArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("nodessh", "NodeSsh"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        seed = random.RandomPassword(f"{name}-seed", length=64, special=False, opts=child)
        secret = pods.secret(
            f"{name}-secret",
            c.NODE_SSH_SECRET,
            args.namespace,
            {
                "key": seed.result.apply(host_key),
                "known_hosts": seed.result.apply(known_hosts),
                "ssh_config": ssh_config(args.nodesets),
            },
            child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})


def known_hosts(seed: str) -> str:
    return f"* {public_host_key(seed)}\n"


def mounted(secret: pulumi.Input[str]) -> pods.Mounted:
    """Return the volume and the mount that give login nodes and workers the Secret of a
    `NodeSsh`."""
    volume = pods.secret_volume("node-ssh", secret, mode=0o444)
    return pods.mounted(volume, c.NODE_SSH, read_only=True)
