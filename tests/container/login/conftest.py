"""A login node in a container, with a jail and Slurm like in the pod."""

import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components import conventions as c
from components.identity import users as people
from components.identity.hostkeys import host_key, public_host_key
from components.settings import Settings
from components.slurm.login import SSHD_CAPABILITIES
from components.slurm.loginconf import login_files
from local import host
from tests.container.login.node import FIRST, NODE_SSH, SEED, SHOWN, LoginNode, make_key
from tests.support.containers import Start, containers, put
from tests.support.slurmctld import Slurmctld, prepare, start_controller
from tests.support.stack import alone
from tests.support.waiting import eventually

POPULATE = f"JAIL_REFRESH=0 {c.PROGRAMS}/populate"
PREPARE = f"""
set -e
mkdir -p {" ".join(SHOWN)}
mount -t tmpfs tmp {c.LOGIN_TMP}
while IFS=: read -r name _ uid gid _ home _; do
  install -d -o $uid -g $gid -m 0700 {c.JAIL}$home
done <{c.EXTRAUSERS}/passwd
"""


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="package")
def config(folder: Path) -> Settings:
    key = make_key(folder, "key")

    def edit(values: dict[str, Any]) -> None:
        for user in values["users"]:
            user["ssh_keys"] = [key]
        # Name an LDAP server that does not exist. Only test_directory.py uses a directory, and
        # starts a real LDAP server.
        values["directory"] = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}

    return alone(edit)


@pytest.fixture(scope="package")
def started(folder: Path, config: Settings) -> Iterator[LoginNode]:
    name = f"slurmstack-login-{uuid.uuid4().hex[:8]}"
    jail, pipes = (
        host.engine(print).volumes.create(f"{name}-{kind}") for kind in ("jail", "pipes")
    )
    try:
        with containers("slurmstack-login") as start:
            yield _start(start, jail.name, pipes.name, folder, config)
    finally:
        for volume in (jail, pipes):
            volume.remove()


def _start(start: Start, jail_volume: str, pipes: str, folder: Path, config: Settings) -> LoginNode:
    secret = secrets.token_hex(64)
    sockets = {pipes: {"bind": c.DIRECTORY_OWN}}
    slurmctld = start_controller(start, secret, volumes=sockets)
    slurmctld.install(config)
    slurmctld.start()
    jail = {jail_volume: {"bind": c.JAIL}}
    temporary = {str(folder.parent): {"bind": str(folder.parent)}}
    client = Slurmctld(start("jail", volumes={**jail, **temporary}))
    client.run(POPULATE, user="root")
    address = c.controller_address(config.namespace, config.cluster.domain)
    daemons = prepare(
        start(
            "login",
            hostname="login-0",
            extra_hosts={address: slurmctld.address},
            cap_drop=["ALL"],
            cap_add=list(SSHD_CAPABILITIES),
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            volumes={**jail, **sockets},
        ),
        secret,
    )
    put(daemons.container, NODE_SSH)
    keys = {user.name: people.authorized_keys(user, folder) for user in config.users}
    put(
        daemons.container,
        {
            f"{c.EXTRAUSERS}/passwd": people.passwd(config.users),
            f"{c.EXTRAUSERS}/group": people.group(config.users),
            f"{c.HOST_KEY}/host_key": host_key(SEED),
            **{f"{c.AUTHORIZED_KEYS}/{name}": text for name, text in keys.items()},
        },
    )
    daemons.run(PREPARE, user="root")
    sackd = f"SLURM_CONF_SERVER={c.conf_server(address)} exec {c.PROGRAMS}/sackd"
    daemons.container.exec_run(
        ["bash", "-c", f"{sackd} >/tmp/sackd 2>&1"], user="slurm", detach=True
    )
    conf = f"test -e {c.SLURM_RUN}/conf/slurm.conf && echo yes || true"
    eventually("slurm.conf exists", lambda: "yes" in daemons.run(conf))
    _write_client(folder, daemons.address)
    node = LoginNode(daemons, slurmctld, client, folder, start, jail_volume, pipes, secret)
    node.install(FIRST)
    node.start()
    return node


def _write_client(folder: Path, address: str) -> None:
    (folder / "known_hosts").write_text(f"[{address}]:{c.SSHD_PORT} {public_host_key(SEED)}\n")
    options = {
        "HostName": address,
        "Port": c.SSHD_PORT,
        "IdentityFile": folder / "key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": 10,
    }
    lines = [f"  {name} {value}\n" for name, value in options.items()]
    (folder / "config").write_text("".join(["Host login\n", *lines]))


@pytest.fixture
def login(started: LoginNode) -> Iterator[LoginNode]:
    """The login node. After the test, the fixture restores the settings, and sshd if it ended."""
    yield started
    is_running = started.is_running()
    log = started.log()
    if not is_running:
        started.install(FIRST)
        started.start()
    elif started.daemons.run(f"cat {c.LOGIN_SETTINGS}/..data/*") != "".join(
        login_files(FIRST).values()
    ):
        started.edit(FIRST)
    assert is_running, f"sshd ended:\n{log}"
