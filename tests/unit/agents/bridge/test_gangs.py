from typing import Any

import msgspec
import pytest

from agents.bridge.gangs import GangError, Job, JobSet, LeaderWorkerSet, PodGroup, membership
from agents.bridge.podspec import Pod
from tests.unit.agents.bridge.things import NOBODY, meta, owners, pod

QOS = "slurmjob.slinky.slurm.net/qos"


def owned(kind: str, name: str, **more: Any) -> Pod:
    owner = {"kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
    return pod("pod-a", ownerReferences=[owner], **more)


def job(**spec: Any) -> Job:
    item = {"metadata": meta("train", annotations={QOS: "high"}), "spec": spec}
    return msgspec.convert(item, Job)


def test_pod_alone_is_a_gang_of_one_with_its_own_annotations() -> None:
    found = membership(pod(annotations={QOS: "low"}), NOBODY)

    assert (found.name, found.size, found.annotations) == ("lab/train", 1, {QOS: "low"})


def test_each_pod_of_a_plain_job_is_alone_but_has_the_annotations_of_the_job() -> None:
    found = membership(owned("Job", "train"), owners(job(parallelism=4)))

    assert (found.size, found.annotations[QOS]) == (1, "high")


def test_pods_of_an_indexed_job_start_together() -> None:
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    made = owners(job(parallelism=4, completions=3, completionMode="Indexed"))

    found = membership(owned("Job", "train", annotations=index), made)

    assert (found.name, found.size) == ("lab/train", 3)
    assert found.key == membership(owned("Job", "train", annotations=index), made).key


def test_new_job_of_the_same_name_is_another_gang() -> None:
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    one = job(parallelism=2, completions=2, completionMode="Indexed")
    other = msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, uid="uid-of-another")
    )

    found = membership(owned("Job", "train", annotations=index), owners(other))

    assert found.size == 1, "the pod belongs to a job that no longer exists"


def test_pods_of_a_pod_group_start_together() -> None:
    group = msgspec.convert(
        {"metadata": meta("mpi", annotations={QOS: "high"}), "spec": {"minMember": 2}}, PodGroup
    )
    found = membership(pod(labels={"scheduling.x-k8s.io/pod-group": "mpi"}), owners(group))

    assert (found.name, found.size, found.annotations[QOS]) == ("lab/mpi", 2, "high")


def test_group_of_a_leader_worker_set_starts_together() -> None:
    made = msgspec.convert({"metadata": meta("vllm")}, LeaderWorkerSet)
    prefix = "leaderworkerset.sigs.k8s.io"

    def member(group: str) -> Pod:
        labels = {f"{prefix}/name": "vllm", f"{prefix}/group-index": group}
        return pod(f"vllm-{group}", labels=labels, annotations={f"{prefix}/size": "3"})

    one, other = (membership(member(group), owners(made)) for group in "01")

    assert (one.size, other.size) == (3, 3)
    assert one.key != other.key


def job_set(**spec: Any) -> JobSet:
    parts = [
        {"name": "leader", "replicas": 1, "template": {"spec": {"parallelism": 1}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2}}},
    ]
    content = {"replicatedJobs": parts, **spec}
    return msgspec.convert({"metadata": meta("set"), "spec": content}, JobSet)


def member(part: str) -> Pod:
    prefix = "jobset.sigs.k8s.io"
    return pod(labels={f"{prefix}/jobset-name": "set", f"{prefix}/replicatedjob-name": part})


def test_all_pods_of_a_job_set_start_together() -> None:
    found = membership(member("leader"), owners(job_set()))

    assert (found.name, found.size) == ("lab/set", 5)


def test_parts_of_a_job_set_with_an_order_are_gangs_of_their_own() -> None:
    made = owners(job_set(startupPolicy={"startupPolicyOrder": "InOrder"}))

    assert membership(member("leader"), made).size == 1
    assert membership(member("workers"), made).size == 4


def test_label_makes_a_gang_of_any_pods() -> None:
    labels = {"slurmstack.dev/gang": "pair"}
    found = membership(pod(labels=labels, annotations={"slurmstack.dev/gang-size": "2"}), NOBODY)

    assert (found.key, found.size) == ("Gang/lab/pair", 2)


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({"slurmstack.dev/gang": "pair"}, {}, "no annotation 'slurmstack.dev/gang-size'"),
        ({"slurmstack.dev/gang": "pair"}, {"slurmstack.dev/gang-size": "0"}, "'0': expected"),
        ({"scheduling.x-k8s.io/pod-group": "mpi"}, {}, "PodGroup 'mpi': does not exist"),
    ],
)
def test_unclear_gang_is_refused_with_a_remedy(
    labels: dict[str, str], annotations: dict[str, str], said: str
) -> None:
    with pytest.raises(GangError, match=said):
        membership(pod(labels=labels, annotations=annotations), NOBODY)
