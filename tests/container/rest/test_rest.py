"""The REST client of the agents, with a real slurmrestd and Slurm."""

import time
from collections.abc import Iterator

import httpx
import pytest

from agents.slurm import Client, Fault, Job, JobRequest, SlurmError, make_token
from images import tags
from tests.container.rest.provider import Provider
from tests.container.rest.server import NODE_NAMES, USER, Rest
from tests.support.containers import put
from tests.support.slurmctld import Slurmctld
from tests.support.waiting import eventually

TEN_MINUTES = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def operator(rest: Rest) -> Iterator[Client]:
    """A client as user `slurm`. After the test, the fixture cancels jobs and resumes nodes."""
    yield (client := rest.client())
    for job in client.jobs():
        client.cancel(job.id)
    for node in client.nodes():
        if "DRAIN" in node.state:
            client.resume(node.name)
    client.close()


@pytest.fixture
def user(rest: Rest) -> Client:
    return rest.client(USER)


def job(script: str = TEN_MINUTES, name: str = "test") -> JobRequest:
    return JobRequest(
        name=name,
        script=script,
        directory="/tmp",
        partition="main",
        nodes=1,
        tasks=1,
        memory_per_node=100,
        time_limit=15,
        comment="by a test",
    )


def record(client: Client, job_id: int) -> Job:
    (found,) = client.job(job_id)
    return found


def test_job_of_a_token_user_runs_and_can_be_cancelled(operator: Client, user: Client) -> None:
    job_id = user.submit(job())
    eventually("the job runs", lambda: "RUNNING" in record(operator, job_id).state)

    running = record(operator, job_id)
    assert (running.name, running.user, running.partition) == ("test", USER, "main")
    assert (running.cpus, running.memory_per_node, running.comment) == (1, 100, "by a test")
    assert running.start_time is not None
    (host,) = (node for node in operator.nodes() if node.name == running.nodes)
    assert (host.alloc_cpus, host.alloc_memory) == (1, 100)
    assert job_id in {one.id for one in operator.jobs()}

    user.cancel(job_id)
    eventually("the job is cancelled", lambda: "CANCELLED" in record(operator, job_id).state)
    user.cancel(job_id)


def test_failed_job_reports_its_exit_code(operator: Client, user: Client) -> None:
    job_id = user.submit(job("#!/bin/sh\nexit 3\n"))
    eventually("the job has failed", lambda: "FAILED" in record(operator, job_id).state)
    assert record(operator, job_id).exit_code == 3


def test_node_is_drained_with_a_reason_and_resumed(operator: Client) -> None:
    operator.drain("cpu-0", "slurmstack:test: too hot")
    operator.drain("cpu-0", "slurmstack:test: too hot")
    node = operator.node("cpu-0")
    assert "DRAIN" in node.state
    assert (node.reason, node.reason_user) == ("slurmstack:test: too hot", "slurm")
    assert node.reason_time is not None

    operator.resume("cpu-0")
    assert "DRAIN" not in operator.node("cpu-0").state
    with pytest.raises(SlurmError, match="Invalid node state"):
        operator.resume("cpu-0")


def test_annotated_node_keeps_comment_and_extra_data(operator: Client) -> None:
    operator.annotate("cpu-1", comment="rack 4", extra='{"rack": 4}')
    operator.annotate("cpu-1", comment="rack 5")
    node = operator.node("cpu-1")
    assert (node.comment, node.extra) == ("rack 5", '{"rack": 4}')


def test_client_reads_partitions_reservations_and_statistics(rest: Rest, operator: Client) -> None:
    assert operator.reservations() == ()
    rest.slurmctld.run(
        "scontrol create reservation reservationname=course users=researcher nodes=cpu-0 "
        "starttime=now+1days duration=60"
    )
    try:
        (course,) = operator.reservations()
        assert (course.name, course.nodes, course.users) == ("course", "cpu-0", USER)
    finally:
        rest.slurmctld.run("scontrol delete reservationname=course")

    (main,) = operator.partitions()
    assert (main.name, main.state, main.nodes) == ("main", frozenset({"UP"}), "cpu-[0-1]")
    assert operator.statistics().server_threads > 0
    assert [ping.up for ping in operator.ping()] == [True]


def test_errors_contain_the_message_of_slurm(operator: Client, user: Client) -> None:
    with pytest.raises(SlurmError, match="Invalid node name"):
        operator.drain("cpu-99", "slurmstack:test")
    with pytest.raises(SlurmError, match="node/cpu-99"):
        operator.node("cpu-99")
    with pytest.raises(SlurmError, match="Invalid job id"):
        operator.cancel(4_000_000)
    with pytest.raises(SlurmError, match="Invalid partition"):
        user.submit(job().model_copy(update={"partition": "none"}))


@pytest.mark.parametrize("name", [USER, "a-stranger"])
def test_only_operators_can_change_a_node(rest: Rest, operator: Client, name: str) -> None:
    with pytest.raises(SlurmError, match="Invalid user id"):
        rest.client(name).drain("cpu-0", "because I can")
    assert "DRAIN" not in operator.node("cpu-0").state


@pytest.mark.parametrize("kind", ["expired", "other key", "garbage", "empty"])
def test_refuses_an_invalid_token(rest: Rest, kind: str) -> None:
    token = {
        "expired": make_token(rest.key, "slurm", 60, now=time.time() - 3600),
        "other key": make_token(b"another key", "slurm", 60),
        "garbage": "a.b.c",
        "empty": "",
    }[kind]
    for request in (Client.nodes, Client.jobs, Client.partitions, Client.statistics):
        with pytest.raises(SlurmError, match="token refused") as error:
            request(rest.client(token=token))
        assert error.value.fault is Fault.REFUSED


def test_refuses_a_request_without_a_token(rest: Rest) -> None:
    response = httpx.get(f"{rest.url}/slurm/v0.0.42/nodes/", trust_env=False)
    assert (response.status_code, response.text) == (401, "Authentication failure")


def test_accepts_a_token_from_scontrol(rest: Rest) -> None:
    printed = rest.slurmctld.run(f"scontrol token username={USER} lifespan=60").strip()
    assert len(rest.client(token=printed.removeprefix("SLURM_JWT=")).nodes()) == len(NODE_NAMES)


def test_job_runs_as_the_user_named_by_the_identity_provider(rest: Rest, operator: Client) -> None:
    client = rest.client(token=rest.provider.token(USER))
    submitted = client.submit(job())
    assert record(operator, submitted).user == USER


@pytest.mark.parametrize("kind", ["expired", "other key"])
def test_refuses_an_invalid_token_of_the_identity_provider(rest: Rest, kind: str) -> None:
    token = {
        "expired": rest.provider.token(USER, lifetime=-3600),
        "other key": Provider().token(USER),
    }[kind]
    with pytest.raises(SlurmError, match="token refused") as error:
        rest.client(token=token).nodes()
    assert error.value.fault is Fault.REFUSED


def test_rest_client_works_in_the_agents_image(rest: Rest) -> None:
    agents = Slurmctld(rest.start("agents", entrypoint=""))
    put(agents.container, {"/tmp/key": rest.key.decode()})
    token = agents.run("python3 -m agents.slurm token --user slurm --key /tmp/key", user="nobody")
    put(agents.container, {"/tmp/token": token})
    printed = agents.run(
        "python3 -c 'from pathlib import Path; from agents.slurm import Client, from_file; "
        f'client = Client("{rest.url}", from_file(Path("/tmp/token"))); '
        "print(*(node.name for node in client.nodes()))'",
        user="nobody",
    )
    assert printed.split() == list(NODE_NAMES), tags.reference("agents")
