"""Slurm's priorities, fair share and limits apply to pods as to jobs."""

from typing import Any

from tests.cluster.bridge.lab import Lab
from tests.support.waiting import eventually

BOB: dict[str, Any] = {"serviceAccountName": "bob"}
"""Pods with this service account act as another user."""


def fill(lab: Lab) -> list[int]:
    """Let jobs of one CPU use all CPUs; return their numbers."""
    return [lab.holds(node, 1) for node in ("cpu-0", "cpu-0", "cpu-1", "cpu-1")]


def starts_first(lab: Lab, jobs: list[int], first: str, second: str) -> None:
    """Assert that the first pod gets the CPU that a job gives back."""
    for name in (first, second):
        lab.job(name)
    lab.cluster.run(f"scancel {jobs[0]}")
    lab.wait_for(first)
    assert lab.machine(second) == ""
    lab.cluster.run(f"scancel {' '.join(map(str, jobs))}")
    lab.wait_for(second)


def test_pod_with_a_higher_qos_starts_before_an_older_pod(lab: Lab) -> None:
    jobs = fill(lab)
    lab.create(lab.manifest("older"))
    lab.job("older")
    lab.create(lab.manifest("newer", annotations={"slurmstack.dev/qos": "high"}))
    starts_first(lab, jobs, "newer", "older")


def test_job_with_a_higher_qos_starts_before_an_older_pod(lab: Lab) -> None:
    jobs = fill(lab)
    lab.create(lab.manifest("older"))
    lab.job("older")
    urgent = lab.cluster.submit("~", "#!/bin/sh\nsleep 600", "--qos=high")

    lab.cluster.run(f"scancel {jobs[0]}")

    lab.cluster.wait_for_job(urgent, "RUNNING")
    assert lab.machine("older") == ""


def test_pod_of_a_user_with_less_usage_starts_before_an_older_pod(lab: Lab) -> None:
    jobs = fill(lab)
    asked = "sshare --noheader --parsable2 --all --accounts=lab --format=User,FairShare"

    def bob_is_owed() -> bool:
        lines = [line.split("|") for line in lab.cluster.run(asked).splitlines()]
        shares = {user: float(share) for user, share in lines if user}
        return shares["bob"] > shares["researcher"]

    # Slurm updates the factors once in a minute.
    eventually("bob has used less than the researcher", bob_is_owed, 150)
    lab.create(lab.manifest("older"))
    lab.job("older")
    lab.create(lab.manifest("newer", **BOB))
    starts_first(lab, jobs, "newer", "older")


def test_limit_of_a_user_refuses_another_pod(lab: Lab) -> None:
    names = [f"p{index}" for index in range(3)]
    lab.create(*(lab.manifest(name, **BOB) for name in names))
    for name in names:
        lab.job(name)

    lab.create(lab.manifest("fourth", **BOB))

    lab.wait_for_message("fourth", "Job violates accounting")
    lab.delete(*names)
    # The bridge asks Slurm again after half a minute.
    lab.wait_for("fourth", timeout=90)
