"""slurmctld, two slurmd and slurmrestd in containers, by the configuration that a stack gets."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from agents.slurm import Client, Fault, SlurmError, make_token
from components import conventions as c
from components.slurmconf import config_files
from images import tags
from local import host
from tests.rest.provider import USER_CLAIM, Provider
from tests.slurmctld.conftest import (
    Slurmctld,
    Start,
    accounts_of,
    controller_address,
    put,
    start_container,
    start_controller,
    start_worker,
)
from tests.unit.components.stack import alone

__all__ = ["start_container"]

USER = "researcher"
REST_PORT = 6820
NODE_NAMES = ("cpu-0", "cpu-1")


@dataclass(frozen=True)
class Rest:
    """Where slurmrestd is, the key of slurmctld behind it, and who else's tokens that takes."""

    url: str
    key: bytes
    provider: Provider
    slurmctld: Slurmctld
    start: Start

    def client(self, user: str = "slurm", token: str | None = None) -> Client:
        """A client for tests: it asks again without a pause."""
        return Client(
            self.url,
            lambda: make_token(self.key, user, 300) if token is None else token,
            sleep=lambda _: None,
        )


def eventually(holds: Callable[[], bool]) -> None:
    """Waits until something holds. Raises AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.2)


def _listens(rest: Rest) -> bool:
    try:
        return bool(rest.client().ping())
    except SlurmError as error:
        if error.fault is Fault.UNREACHABLE:
            return False
        raise


def start_rest(start: Start, controller: Slurmctld, files: Mapping[str, str]) -> str:
    """slurmrestd in a container, with files by their paths; returns its address."""
    hosts = {controller_address(): controller.address}
    slurmrestd = start("rest", extra_hosts=hosts, cap_drop=["ALL"])
    put(slurmrestd, files)
    # It asks for the name of every client's address; here nobody could tell, which takes its time.
    Slurmctld(slurmrestd).run("echo nameserver 127.0.0.1 >/etc/resolv.conf", user="root")
    image = host.engine(print).images.get(tags.reference("rest")).attrs["Config"]
    slurmrestd.exec_run(image["Cmd"], user=image["User"], detach=True)
    return f"http://{Slurmctld(slurmrestd).address}:{REST_PORT}"


@pytest.fixture(scope="package")
def rest(start_container: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    provider, project = Provider(), tmp_path_factory.mktemp("project")
    (project / "keys.json").write_text(provider.jwks())
    tokens = {"jwks": "keys.json", "user_claim": USER_CLAIM}
    config = alone(lambda values: values.update(rest=tokens))
    secret = secrets.token_hex(64)
    files = {f"{c.SLURM_ETC}/{file}": text for file, text in config_files(config, project).items()}
    # Nodes without a jail: their jobs run where slurmd does.
    del files[f"{c.SLURM_ETC}/plugstack.conf"]
    accounts = accounts_of(config)

    controller = start_controller(start_container, secret)
    put(controller.container, {**files, **accounts})
    controller.start()
    for node in NODE_NAMES:
        description = "CPUs=2 RealMemory=1000 Feature=cpu"
        put(
            start_worker(start_container, secret, node, description, controller).container, accounts
        )

    url = start_rest(start_container, controller, {**files, **accounts})
    running = Rest(url, secret.encode(), provider, controller, start_container)
    eventually(lambda: _listens(running))
    eventually(lambda: {node.name for node in running.client().nodes()} == set(NODE_NAMES))
    eventually(lambda: all("IDLE" in node.state for node in running.client().nodes()))
    yield running
    controller.stop()
