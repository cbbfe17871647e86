"""slurmctld, two slurmd and slurmrestd in containers, with the configuration of a stack."""

import secrets
from collections.abc import Iterator

import pytest

from agents.slurm import Fault, SlurmError
from components import conventions as c
from tests.container.rest.provider import USER_CLAIM, Provider
from tests.container.rest.server import NODE_NAMES, Rest
from tests.support.containers import Start, containers, put
from tests.support.slurmctld import accounts_of, start_controller, start_worker, without_jail
from tests.support.slurmrestd import start_rest
from tests.support.stack import alone
from tests.support.waiting import becomes, eventually


def _listens(rest: Rest) -> bool:
    try:
        return bool(rest.client().ping())
    except SlurmError as error:
        if error.fault is Fault.UNREACHABLE:
            return False
        raise


@pytest.fixture(scope="package")
def start_container() -> Iterator[Start]:
    with containers("slurmstack-test") as start:
        yield start


@pytest.fixture(scope="package")
def rest(start_container: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    provider, project = Provider(), tmp_path_factory.mktemp("project")
    (project / "keys.json").write_text(provider.jwks())
    tokens = {"jwks": "keys.json", "user_claim": USER_CLAIM}
    config = alone(lambda values: values.update(rest=tokens))
    secret = secrets.token_hex(64)
    files = {f"{c.SLURM_ETC}/{file}": text for file, text in without_jail(config, project).items()}
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
    eventually("slurmrestd answers", lambda: _listens(running))
    becomes(
        "the set of nodes",
        lambda: {node.name for node in running.client().nodes()},
        set(NODE_NAMES),
    )
    eventually(
        "all nodes are idle",
        lambda: all("IDLE" in node.state for node in running.client().nodes()),
    )
    yield running
    controller.stop()
