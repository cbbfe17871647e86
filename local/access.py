"""Says how to log in, once there is something to log in to.

`python -m local.access --stack dev` writes `.local/<stack>/ssh_config` and `known_hosts` for a
local cluster, waits until the login node answers and the nodes that the settings ask for are
idle, and prints the command. The login node's host key comes from the stack's outputs, so that
nobody has to trust a first connection.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from components.settings import LocalCluster, Settings, SettingsError, read_stack
from local import host
from local.errors import LocalError
from local.paths import ROOT

_PATIENCE = 180
"""Seconds until nodes that do not come are only reported."""


def ssh_config(directory: Path, user: str, port: int) -> str:
    """OpenSSH client configuration for the host `login`; absolute paths, for any caller."""
    return "\n".join(
        [
            "Host login",
            "  HostName 127.0.0.1",
            f"  Port {port}",
            f"  User {user}",
            f"  IdentityFile {directory / 'id_ed25519'}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {directory / 'known_hosts'}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            # Docker's proxy answers where no sshd does yet.
            "  ConnectTimeout 10",
            "  ServerAliveInterval 30",
            "",
        ]
    )


def known_hosts(port: int, host_key: str) -> str:
    return f"[127.0.0.1]:{port} {host_key}\n"


def host_key(stack: str) -> str:
    """The login node's public host key, from the stack's outputs.

    Raises `SettingsError` where the stack has none.
    """
    path = ROOT / ".local/state/.pulumi/stacks/slurmstack" / f"{stack}.json"
    try:
        resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
        outputs = next(r["outputs"] for r in resources if r["type"] == "pulumi:pulumi:Stack")
        return str(outputs["login_host_key"])
    except (OSError, LookupError, StopIteration):
        raise SettingsError(
            f"stack '{stack}' has no login node yet; bring it up first: make up STACK={stack}"
        ) from None


def write_access(stack: str, settings: Settings, cluster: LocalCluster) -> Path:
    """Writes the files for ssh and returns the path of its configuration."""
    directory = ROOT / ".local" / stack
    user = settings.users[0].name if settings.users else "root"
    (directory / "known_hosts").write_text(known_hosts(cluster.ssh_port, host_key(stack)))
    config = directory / "ssh_config"
    config.write_text(ssh_config(directory, user, cluster.ssh_port))
    return config


def idle_nodes(config: Path) -> list[str] | None:
    """Names of the nodes that are up, or None where login or Slurm does not answer."""
    answer = subprocess.run(
        ["ssh", "-F", config, "-o", "ConnectTimeout=5", "login",
         "sinfo --noheader --Node --responding --format='%N %t'"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if answer.returncode:
        return None
    pairs = (line.split() for line in answer.stdout.splitlines())
    return sorted({name for name, state in pairs if state in ("idle", "mix", "alloc")})


def wait_for_nodes(config: Path, wanted: int) -> bool:
    """Waits until `wanted` nodes are up; False when that takes longer than is sensible."""
    start = time.monotonic()
    said = ""
    while True:
        nodes = idle_nodes(config)
        up = 0 if nodes is None else len(nodes)
        state = "login does not answer yet" if nodes is None else f"{up} of {wanted} nodes are up"
        if state != said:
            print(f"[{time.monotonic() - start:5.1f} s] {state}", file=sys.stderr, flush=True)
            said = state
        if nodes is not None and up >= wanted:
            return True
        if time.monotonic() - start > _PATIENCE:
            return False
        time.sleep(0.5)


def main(arguments: Sequence[str]) -> int:
    """0 when one can log in and all nodes are up; 1 with one line otherwise."""
    parser = argparse.ArgumentParser(prog="python -m local.access", description=__doc__)
    parser.add_argument("--stack", default="dev")
    stack = parser.parse_args(arguments).stack
    try:
        settings = read_stack(stack, ROOT)
        if not isinstance(settings.cluster, LocalCluster):
            print(f"The stack is up; its login Service is 'login' in '{settings.namespace}'.")
            return 0
        host.install(host.missing_packages(["ssh"]), print)
        config = write_access(stack, settings, settings.cluster)
    except (LocalError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wanted = sum(nodeset.replicas for nodeset in settings.nodesets)
    complete = wait_for_nodes(config, wanted)
    if not complete:
        print(f"error: not all of {wanted} nodes came up; see: make status", file=sys.stderr)
    print(f"Log in:  ssh -F {config.relative_to(ROOT)} login")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
