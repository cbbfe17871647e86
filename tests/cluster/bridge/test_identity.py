"""A pod acts as a Slurm user only through a rule in the settings."""

import shlex

import pytest

from components import conventions as c
from tests.cluster.bridge.lab import Lab
from tests.support.waiting import eventually

ASK = f"""
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://bridge.slurm.svc:{c.BRIDGE_PORT}/machines/node-0", timeout=10)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.parametrize("key", ["slurmjob.slinky.slurm.net/user-id", "slurmstack.dev/user-id"])
@pytest.mark.parametrize("user", ["root", "0", "bob", "2001"])
def test_forged_user_is_refused_with_a_reason(lab: Lab, key: str, user: str) -> None:
    said = lab.create(lab.manifest("train", annotations={key: user}), check=False)
    assert "no rule in bridge.users lets this pod use the value of its annotation" in said
    assert lab.pods() == {}


def test_service_account_chooses_the_user(lab: Lab) -> None:
    annotations = {"slurmstack.dev/user-id": "bob"}
    lab.create(lab.manifest("train", serviceAccountName="bob", annotations=annotations))
    job = lab.job("train")
    assert lab.shown(job, "UserId") == ["bob(2001)"]
    lab.delete("train")


def test_pods_of_other_namespaces_are_refused(lab: Lab) -> None:
    said = lab.create(lab.manifest("train"), namespace="default", check=False)
    assert "no rule in bridge.users covers this namespace" in said


def test_user_cannot_link_a_pod_to_a_job(lab: Lab) -> None:
    lab.create(lab.manifest("train"))
    lab.job("train")
    for change in ("slurmstack.dev/job=1", "slurmstack.dev/job-", "slurmstack.dev/bridge-"):
        said = lab.kubectl("label", "--overwrite", "pod", "train", change, check=False)
        assert "only the bridge may set the labels" in said
    patch = '{"metadata": {"finalizers": null}}'
    said = lab.kubectl("patch", "pod", "train", "--type=merge", "--patch", patch, check=False)
    assert "only the bridge may set" in said


def test_only_nodes_can_ask_the_bridge_to_free_a_machine(lab: Lab) -> None:
    """The question of a node that starts makes the bridge delete the pods on its machine."""
    lab.create(lab.manifest("forger", f"python3 -c {shlex.quote(ASK)}"))
    lab.wait_for("forger", "Succeeded")
    assert lab.kubectl("logs", "forger").strip() == "401"

    read = lab.cluster.run(f"srun -w cpu-0 cat {c.BRIDGE_KEY} 2>&1", check=False)
    assert "No such file or directory" in read


def test_unknown_annotation_of_slinky_is_told_in_an_event(lab: Lab) -> None:
    lab.create(lab.manifest("train", annotations={"slurmjob.slinky.slurm.net/acount": "x"}))
    lab.wait_for_message("train", "did you mean 'account'?")
    eventually(
        "an event says why",
        lambda: "did you mean 'account'?" in lab.kubectl("get", "events", "--output=json"),
    )
