"""Print the command to log in, as soon as login works.

`python -m local.access --stack dev` writes `.local/<stack>/ssh_config` and `known_hosts`, and
prints the command to log in. On a local cluster, it first waits for a login node, and for the nodes
in the settings to be up or powered down. The stack's outputs provide the address and the host key.
The user therefore need not trust an unknown key at the first connection.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.drains import COST, ROLL
from components import conventions as c
from components.settings import LocalCluster, Settings, SettingsError, read_stack
from local import host, outputs
from local.errors import LocalError
from local.paths import ROOT, stack_directory, write

_PATIENCE = 180
"""Seconds to wait for nodes before the command reports the missing ones."""
_IN_SERVICE = ("idle", "mix", "alloc", "comp", "plnd", "resv", "maint")
"""Short states, without flags, of nodes to which Slurm can allocate jobs.

Source: node_state_string_compact() in slurm_protocol_defs.c, Slurm 24.11.
"""
_FLAGS = "~#!%$@^+-"
"""Characters that can follow a short state.

In this order, they mean: powered down, powering up, waiting to power down, powering down, in
maintenance, waiting to reboot, rebooting, completing, planned.
"""


_ALIAS = "login"
"""The login nodes' name in known_hosts, for any address and port."""


@dataclass(frozen=True)
class Entry:
    """The address of the login nodes. For a local stack, also the user who logs in, and the key."""

    address: str | None
    """None if no single address exists: with NodePort, users connect to any Kubernetes node."""
    port: int
    user: str | None = None
    key: Path | None = None


def ssh_config(directory: Path, entry: Entry) -> str:
    """Return OpenSSH's client configuration for the host `login`, with absolute paths.

    If the entry has no address, the configuration applies to any host.
    """
    host = ["Host login", f"  HostName {entry.address}"] if entry.address else ["Host *"]
    own = [f"  IdentityFile {entry.key}", "  IdentitiesOnly yes"] if entry.key else []
    return "\n".join(
        [
            *host,
            f"  Port {entry.port}",
            *([f"  User {entry.user}"] if entry.user else []),
            *own,
            f"  HostKeyAlias {_ALIAS}",
            f"  UserKnownHostsFile {directory / 'known_hosts'}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            # Limit the time: Docker's proxy accepts connections before sshd listens, so ssh would
            # wait for a response.
            "  ConnectTimeout 10",
            "  ServerAliveInterval 30",
            "",
        ]
    )


def entry_of(stack: str, settings: Settings, outputs: Mapping[str, Any]) -> Entry:
    """Return where users log in, read from the stack's outputs.

    Raises LocalError before the first deploy, and while a load balancer has no address.
    """
    address, port = outputs.get("login_address"), outputs.get("login_port")
    if port is None:
        raise LocalError(
            f"stack '{stack}' has no login node yet; deploy the stack with `make up STACK={stack}`"
        )
    if address is None and settings.login.service == "LoadBalancer":
        raise LocalError(
            f"login.service: LoadBalancer: the load balancer of stack '{stack}' had no address"
            f" yet at the last deploy; deploy the stack again with `make up STACK={stack}`"
        )
    if not isinstance(settings.cluster, LocalCluster):
        return Entry(address, int(port))
    user = settings.users[0].name if settings.users else "root"
    return Entry(address, int(port), user, stack_directory(stack) / "id_ed25519")


def write_access(stack: str, settings: Settings) -> tuple[Entry, Path]:
    """Write the files for ssh; return the entry and the path of ssh_config. Raises LocalError."""
    found = outputs.read(stack)
    entry = entry_of(stack, settings, found)
    directory = stack_directory(stack)
    write(directory / "known_hosts", f"{_ALIAS} {found['login_host_key']}\n")
    write(directory / "ssh_config", ssh_config(directory, entry))
    return entry, directory / "ssh_config"


def nodes(config: Path) -> dict[str, str] | None:
    """Return the state and the drain reason of each node, by name.

    Return None if the login node or slurmctld does not answer.
    """
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
    """Return whether a node accepts jobs, or will accept jobs without help from a person.

    This includes nodes on demand that are powered down or were drained because of their costs. It
    also includes nodes that finish their jobs before an update. A `*` at the end of the state
    (`idle*`) means that the node does not respond.
    """
    short, _, reason = state.partition(" ")
    return short.rstrip(_FLAGS) in _IN_SERVICE or reason.startswith((COST, ROLL))


def absent(wanted: Sequence[str], found: Mapping[str, str] | None) -> list[str]:
    """Return a line for each wanted node that is not up, with the node's state in Slurm."""
    if found is None:
        return [f"{name}: slurmctld does not answer" for name in wanted]
    return [
        f"{name}: {found.get(name, 'Slurm does not list this node')}"
        for name in wanted
        if name not in found or not is_up(found[name])
    ]


def wait_for_nodes(config: Path, wanted: Sequence[str]) -> list[str]:
    """Wait at most _PATIENCE seconds for the nodes. Return a line for each node that is not up."""
    start = time.monotonic()
    printed = ""
    while True:
        found = nodes(config)
        missing = absent(wanted, found)
        up = len(wanted) - len(missing)
        state = (
            "the login node does not answer yet"
            if found is None
            else f"{up} of {len(wanted)} Slurm nodes are up"
        )
        if state != printed:
            print(f"[{time.monotonic() - start:5.1f} s] {state}", file=sys.stderr, flush=True)
            printed = state
        if not missing or time.monotonic() - start > _PATIENCE:
            return missing
        time.sleep(0.5)


def login_command(stack: str, settings: Settings, entry: Entry, config: Path) -> str:
    """Return the command to log in to a stack that is not local."""
    ssh, kubectl = f"ssh -F {config}", f"$(make -s kubeconfig STACK={stack})"
    if entry.address:
        return f"{ssh} USER@login"
    if settings.login.service == "NodePort":
        return (
            f"{ssh} USER@NODE, where NODE is an address that"
            f" `{kubectl} get nodes --output=wide` lists"
        )
    forward = f"{kubectl} -n {settings.namespace} port-forward service/{c.LOGIN} 2222:{c.SSH_PORT}"
    return f"{forward}; in another terminal: {ssh} -p 2222 USER@127.0.0.1"


def main(arguments: Sequence[str]) -> int:
    """Return 0 if login works and all nodes are up; otherwise print one line and return 1."""
    parser = argparse.ArgumentParser(prog="python -m local.access", description=__doc__)
    parser.add_argument("--stack", default="dev")
    stack = parser.parse_args(arguments).stack
    try:
        settings = read_stack(stack, ROOT)
        is_local = isinstance(settings.cluster, LocalCluster)
        if is_local:
            host.install(host.missing_packages(["ssh"]), print)
        entry, config = write_access(stack, settings)
    except (LocalError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not is_local:  # the operator may have no account on the cluster, so do not try to log in
        print(f"Log in:  {login_command(stack, settings, entry, config.relative_to(ROOT))}")
        return 0
    wanted = [f"{each.name}-{n}" for each in settings.nodesets for n in range(each.replicas)]
    missing = wait_for_nodes(config, wanted)
    if missing:
        states = "; ".join(missing)
        print(
            f"error: {len(missing)} of {len(wanted)} Slurm nodes are not up: {states}; for"
            f" details, run `make status STACK={stack}`",
            file=sys.stderr,
        )
    print(f"Log in:  ssh -F {config.relative_to(ROOT)} login")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
