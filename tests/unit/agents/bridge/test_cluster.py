"""Pods and machines, as Kubernetes shows them."""

from typing import Any

import pytest

from agents import labels
from agents.bridge import cluster
from agents.bridge.observed import Pod
from agents.bridge.podspec import Pod as PodObject
from agents.bridge.volumes import Volumes
from agents.bridge.wanted import Wanted
from tests.unit.agents.bridge import things

NO_VOLUMES = Volumes({}, {}, {})
WANTED = things.wanted(things.rule())


def item(phase: str = "Pending", content: dict[str, Any] | None = None, **more: Any) -> PodObject:
    return things.read(
        {
            "metadata": things.meta("train", **more),
            "spec": {"containers": [], "schedulerName": "slurm-bridge", **(content or {})},
            "status": {"phase": phase},
        },
        PodObject,
    )


def read(one: PodObject, *machines: str, wanted: Wanted = WANTED) -> Pod:
    return cluster.pod(one, things.NOBODY, NO_VOLUMES, set(machines), wanted)


def test_pod_waits_for_its_job() -> None:
    found = read(item())
    assert (found.job, found.machine, found.has_stopped, found.problem) == (None, "", False, "")
    assert found.request
    assert found.request.identity.user == "alice"


def test_linked_pod_names_its_job() -> None:
    link = {labels.JOB: "7", labels.BRIDGE: "slurm"}
    found = read(item(labels=link, finalizers=[labels.BRIDGE]))
    assert (found.job, found.is_guarded) == (7, True)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_has_stopped_when_kubernetes_reports_its_end(phase: str) -> None:
    found = read(item(phase, {"nodeName": "node-1"}), "node-1")
    assert (found.has_stopped, found.has_succeeded) == (True, phase == "Succeeded")


def test_deleted_pod_runs_until_its_containers_have_stopped() -> None:
    found = read(item("Running", {"nodeName": "node-1"}, deletionTimestamp=things.MOMENT), "node-1")
    assert (found.leaves, found.has_stopped) == (True, False)
    assert read(item(deletionTimestamp=things.MOMENT)).has_stopped


def test_pod_of_a_machine_that_is_gone_has_stopped() -> None:
    assert read(item("Running", {"nodeName": "node-9"}), "node-1").has_stopped


def test_pod_without_a_rule_says_why_it_never_runs() -> None:
    found = read(item(), wanted=things.wanted())
    assert "no rule in bridge.users covers" in found.problem
    assert found.request is None


def test_pod_with_more_cpus_than_slurm_can_count_is_refused() -> None:
    size = {"requests": {"cpu": "1"}, "limits": {"cpu": "65537"}}
    found = read(item(content={"containers": [{"name": "main", "resources": size}]}))
    assert "65537 CPUs: expected at most 65533" in found.problem
    assert found.request is None


def test_pods_of_different_users_are_different_gangs() -> None:
    """A pod must not run in a job of another user, although both name the same gang."""
    rules = [things.rule(), things.rule("bob", 1002, service_account="bob")]
    gang: dict[str, Any] = {
        "labels": {"slurmstack.dev/gang": "g"},
        "annotations": {"slurmstack.dev/gang-size": "2", "slurmstack.dev/user-id": "bob"},
    }
    alices: dict[str, Any] = {**gang, "annotations": {"slurmstack.dev/gang-size": "2"}}
    wanted = things.wanted(*rules)

    one = read(item(**alices), wanted=wanted)
    other = read(item(content={"serviceAccountName": "bob"}, **gang), wanted=wanted)

    assert one.request
    assert other.request
    assert (one.request.identity.user, other.request.identity.user) == ("alice", "bob")
    assert one.gang != other.gang
