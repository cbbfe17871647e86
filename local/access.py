"""Print the command to log in, as soon as logging in works.

`python -m local.access --stack dev` writes `.local/<stack>/ssh_config` and `known_hosts` for a
local cluster. It waits until the login node answers and the nodes in the settings are up, and
prints the command. The login node's host key comes from the stack's outputs, so the user does not
have to trust an unknown key at the first connection.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.settings import LocalCluster, Settings, SettingsError, read_stack
from local import host
from local.errors import LocalError
from local.paths import ROOT

_PATIENCE = 180
"""Seconds to wait before missing nodes are reported."""


def ssh_config(directory: Path, user: str, port: int) -> str:
    """Return OpenSSH's client configuration for `login`, with absolute paths."""
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
            # Limit the time: Docker's proxy accepts connections before sshd listens.
            "  ConnectTimeout 10",
            "  ServerAliveInterval 30",
            "",
        ]
    )


def known_hosts(port: int, host_key: str) -> str:
    return f"[127.0.0.1]:{port} {host_key}\n"


def host_key(stack: str) -> str:
    """Return the login node's public host key, from the stack's outputs.

    Raises `SettingsError` if the stack has none.
    """
    path = ROOT / ".local/state/.pulumi/stacks/slurmstack" / f"{stack}.json"
    try:
        resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
        outputs = next(r["outputs"] for r in resources if r["type"] == "pulumi:pulumi:Stack")
        return str(outputs["login_host_key"])
    except (OSError, LookupError, StopIteration):
        raise SettingsError(
            f"stack '{stack}' has no login node yet; deploy it first: make up STACK={stack}"
        ) from None


def write_access(stack: str, settings: Settings, cluster: LocalCluster) -> Path:
    """Write the files for ssh and return the path of its configuration."""
    directory = ROOT / ".local" / stack
    user = settings.users[0].name if settings.users else "root"
    (directory / "known_hosts").write_text(known_hosts(cluster.ssh_port, host_key(stack)))
    config = directory / "ssh_config"
    config.write_text(ssh_config(directory, user, cluster.ssh_port))
    return config


def nodes(config: Path) -> dict[str, str] | None:
    """Return state and reason of each node by name; None if login or Slurm does not answer."""
    answer = subprocess.run(
        ["ssh", "-F", config, "-o", "ConnectTimeout=5", "login",
         "sinfo --noheader --Node --format='%N %t %E'"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if answer.returncode:
        return None
    return {
        name: state
        for name, _, state in (line.partition(" ") for line in answer.stdout.splitlines())
    }


def is_up(state: str) -> bool:
    """Return whether a node in this state accepts jobs. With `*` (`idle*`), it does not respond."""
    return state.split()[0] in ("idle", "mix", "alloc")


def absent(wanted: Sequence[str], found: Mapping[str, str] | None) -> list[str]:
    """Return a line for each wanted node that is not up, with the node's state in Slurm."""
    if found is None:
        return [f"{name}: Slurm does not answer" for name in wanted]
    return [
        f"{name}: {found.get(name, 'Slurm does not list it')}"
        for name in wanted
        if name not in found or not is_up(found[name])
    ]


def wait_for_nodes(config: Path, wanted: Sequence[str]) -> list[str]:
    """Wait at most _PATIENCE seconds for the nodes. Return a line for each missing one."""
    start = time.monotonic()
    printed = ""
    while True:
        found = nodes(config)
        missing = absent(wanted, found)
        up = len(wanted) - len(missing)
        state = (
            "login does not answer yet" if found is None else f"{up} of {len(wanted)} nodes are up"
        )
        if state != printed:
            print(f"[{time.monotonic() - start:5.1f} s] {state}", file=sys.stderr, flush=True)
            printed = state
        if not missing or time.monotonic() - start > _PATIENCE:
            return missing
        time.sleep(0.5)


def main(arguments: Sequence[str]) -> int:
    """Return 0 if login works and all nodes are up; otherwise print one line and return 1."""
    parser = argparse.ArgumentParser(prog="python -m local.access", description=__doc__)
    parser.add_argument("--stack", default="dev")
    stack = parser.parse_args(arguments).stack
    try:
        settings = read_stack(stack, ROOT)
        if not isinstance(settings.cluster, LocalCluster):
            print(f"The stack is up; log in through the Service login in {settings.namespace}.")
            return 0
        host.install(host.missing_packages(["ssh"]), print)
        config = write_access(stack, settings, settings.cluster)
    except (LocalError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wanted = [f"{each.name}-{n}" for each in settings.nodesets for n in range(each.replicas)]
    missing = wait_for_nodes(config, wanted)
    if missing:
        states = "; ".join(missing)
        print(
            f"error: not all of {len(wanted)} nodes are up: {states}; run `make status`",
            file=sys.stderr,
        )
    print(f"Log in:  ssh -F {config.relative_to(ROOT)} login")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
