"""Slurm's REST API: access with and without a valid token."""

import json

import pytest

from agents.slurm import make_token
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

SLURMCTLD, SLURMDBD = "slurm/v0.0.42", "slurmdb/v0.0.42"
GET_TOKEN = "unset SLURM_JWT; export $(scontrol token lifespan=600)"
CURL = 'curl --silent --show-error --max-time 20 --header "X-SLURM-USER-TOKEN: $SLURM_JWT"'
ASK = f"{CURL} http://rest:6820/{SLURMCTLD}"


def test_user_can_submit_a_job_with_their_own_token(cluster: Cluster, folder: str) -> None:
    job = {
        "script": "#!/bin/sh\nid -un; pwd\n",
        "job": {
            "name": "by-http",
            "current_working_directory": folder,
            "environment": ["PATH=/usr/bin:/bin"],
            "standard_output": f"{folder}/out",
        },
    }
    cluster.run(f"cat >{folder}/job.json <<'EOF'\n{json.dumps(job)}\nEOF")
    answer = json.loads(
        cluster.run(
            f"{GET_TOKEN}; {ASK}/job/submit --json @{folder}/job.json",
        )
    )

    assert answer["errors"] == []
    cluster.wait_for_job(answer["job_id"])
    assert cluster.run(f"cat {folder}/out").splitlines() == ["researcher", folder]


def test_rest_api_reports_how_a_job_ended(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nexit 3", "--job-name=on-record")
    ask = f"{GET_TOKEN}; {CURL} http://rest:6820/{SLURMDBD}/job/{job}"

    def state() -> list[str]:
        jobs = json.loads(cluster.run(ask))["jobs"]
        return [state for found in jobs for state in found["state"]["current"]]

    eventually("accounting has the record", lambda: state() == ["FAILED"])
    (found,) = json.loads(cluster.run(ask))["jobs"]
    assert (found["name"], found["user"]) == ("on-record", "researcher")
    assert found["exit_code"]["return_code"]["number"] == 3


@pytest.mark.parametrize(
    ("asked", "refused"),
    # With an invalid token, slurmrestd gets no connection to slurmdbd and answers 502.
    [(f"{SLURMCTLD}/jobs/", "511"), (f"{SLURMDBD}/jobs/", "502")],
    ids=["slurmctld", "slurmdbd"],
)
@pytest.mark.parametrize(
    ("kind", "token"),
    [
        ("missing", ""),
        ("garbage", "a.b.c"),
        ("expired", "$(scontrol token lifespan=1 | cut -d= -f2; sleep 3)"),
        ("other key", make_token(b"another key", "researcher", 60)),
    ],
    ids=["missing", "garbage", "expired", "other key"],
)
def test_invalid_token_is_refused(
    cluster: Cluster, kind: str, token: str, asked: str, refused: str
) -> None:
    ask = f"SLURM_JWT={token}; {CURL} http://rest:6820/{asked}"
    code = cluster.run(f"{ask} --output /dev/null --write-out '%{{http_code}}'")
    assert code == ("401" if kind == "missing" else refused)
    assert "job_id" not in cluster.run(ask)


def test_slurmrestd_has_no_keys_and_no_capabilities(cluster: Cluster) -> None:
    (pod,) = cluster.pods("rest")
    name = pod["metadata"]["name"]
    assert not [v for v in pod["spec"]["volumes"] if "secret" in v]
    status = cluster.in_pod(name, "slurmrestd", "cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert "Uid:\t64032" in status


def test_operator_can_create_a_token_for_any_user(cluster: Cluster) -> None:
    token = cluster.in_pod(
        *("deploy/reconciler", "reconciler"),
        *("python3", "-m", "agents.slurm", "token", "--user", "student", "--lifetime", "60"),
    ).strip()
    answer = cluster.run(f"SLURM_JWT={token}; {ASK}/jobs/")
    assert json.loads(answer)["errors"] == []


def test_slurmrestd_answers_again_after_its_pod_is_deleted(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", "-l", "slurmstack.dev/component=rest")
    ping = f"{GET_TOKEN}; {ASK}/ping/"
    eventually(
        "slurmrestd answers",
        lambda: '"UP"' in cluster.ssh(ping, check=False).stdout.replace(" ", ""),
    )
