"""When an object is ready, and the notes that the engine shows until then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from engine.errors import EngineError
from engine.providers import Operation
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.manifests import Kind, Ref
from engine.providers.kubernetes.pods import Pods
from engine.providers.kubernetes.waiting import Around, Progress, check_for, timeout_of

Object = dict[str, Any]


@dataclass
class Cluster:
    """A fake of the API that lists objects by kind and records deletions."""

    lists: Mapping[str, list[Object]] = field(default_factory=dict)
    logs: str = ""
    deleted: list[str] = field(default_factory=list)

    def objects(self, kind: Kind, namespace: str | None, **query: str) -> list[Object]:
        return list(self.lists.get(kind.kind, []))

    def get(self, ref: Ref) -> Object | None:
        found = self.lists.get(ref.kind.kind, [])
        return next((o for o in found if o["metadata"]["name"] == ref.name), None)

    def log_tail(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        return self.logs

    def delete(self, ref: Ref, propagation: str) -> None:
        self.deleted.append(ref.name)


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def look(
    kind: Kind, live: Object, cluster: Cluster | None = None, *, created: bool = True
) -> Progress:
    full = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        **live,
        "metadata": {"name": "it", "namespace": "slurm", "uid": "u", **live.get("metadata", {})},
    }
    api = cast(Api, cluster or Cluster())
    return check_for(kind, full)(full, Around(api, Ref(kind, "slurm", "it"), created))


def pod(name: str = "it-0", *, ready: bool = False, **fields: Any) -> Object:
    """Return a pod of the workload ``it``. ``containers`` are container statuses."""
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(fields.pop("age", 0))},
        {"type": "Ready", "status": "True" if ready else "False"},
    ]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "slurm",
            "uid": f"uid-{name}",
            "labels": fields.pop("labels", {}),
            "ownerReferences": [{"uid": fields.pop("owner", "u"), "controller": True}],
        },
        "status": {
            "phase": fields.pop("phase", "Pending"),
            "conditions": fields.pop("conditions", conditions),
            "containerStatuses": fields.pop("containers", []),
        },
    }


def waiting(reason: str, message: str = "", **status: Any) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": "main", "image": "reg/main:1", "ready": False, "state": state, **status}


CRASHED = {"terminated": {"reason": "Error", "exitCode": 2, "finishedAt": ago(5)}}

# -------------------------------------------------------------------------------- StatefulSets

STATEFUL_SET = Kind("apps/v1", "StatefulSet")


def stateful_set(
    replicas: int = 2, spec: Object | None = None, generation: int = 1, **status: Any
) -> Object:
    return {
        "metadata": {"generation": generation},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "it"}},
            **(spec or {}),
        },
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "readyReplicas": replicas,
            "updatedReplicas": replicas,
            "currentRevision": "r1",
            "updateRevision": "r1",
            **status,
        },
    }


@pytest.mark.parametrize(
    ("live", "note"),
    [
        (stateful_set(), ""),
        (stateful_set(replicas=0), ""),
        (stateful_set(readyReplicas=1), "1 of 2 pods ready"),
        (stateful_set(generation=2), "2 of 2 pods ready"),
        (stateful_set(updateRevision="r2", updatedReplicas=1), "1 of 2 pods updated"),
        (
            stateful_set(
                spec={"updateStrategy": {"rollingUpdate": {"partition": 1}}},
                updateRevision="r2",
                updatedReplicas=1,
            ),
            "",
        ),
        (stateful_set(spec={"updateStrategy": {"type": "OnDelete"}}, updateRevision="r2"), ""),
    ],
    ids=[
        "all ready",
        "zero replicas",
        "one missing",
        "not yet observed by the controller",
        "half updated",
        "updated down to the partition",
        "OnDelete waits for a deletion",
    ],
)
def test_statefulset_is_ready_when_all_its_pods_are_ready(live: Object, note: str) -> None:
    progress = look(STATEFUL_SET, live)
    assert progress.done is (note == "")
    assert progress.note == note


def test_note_shows_the_state_of_the_first_unready_pod() -> None:
    cluster = Cluster({"Pod": [pod("it-0", ready=True), pod("it-1")]})
    progress = look(STATEFUL_SET, stateful_set(readyReplicas=1), cluster)
    assert str(progress) == "1 of 2 pods ready: it-1: starting"


def test_pods_of_another_owner_are_ignored() -> None:
    stranger = pod("x-0", owner="someone", containers=[waiting("InvalidImageName")])
    progress = look(STATEFUL_SET, stateful_set(readyReplicas=1), Cluster({"Pod": [stranger]}))
    assert str(progress) == "1 of 2 pods ready"
    assert not progress.failure


def test_broken_pod_of_an_old_revision_is_deleted() -> None:
    broken = pod("it-0", labels={"controller-revision-hash": "r1"})
    broken["status"]["containerStatuses"] = [waiting("ImagePullBackOff")]
    cluster = Cluster({"Pod": [broken]})
    live = stateful_set(readyReplicas=0, updateRevision="r2")
    progress = look(STATEFUL_SET, live, cluster, created=False)
    assert cluster.deleted == ["it-0"]
    assert "it-0" in progress.note


@pytest.mark.parametrize(
    ("revision", "containers", "spec"),
    [
        ("r2", [waiting("ImagePullBackOff")], {}),
        ("r1", [waiting("ContainerCreating")], {}),
        ("r1", [waiting("ImagePullBackOff")], {"podManagementPolicy": "Parallel"}),
        ("r1", [waiting("ImagePullBackOff")], {"updateStrategy": {"type": "OnDelete"}}),
    ],
    ids=["a new pod", "a starting pod", "Parallel", "OnDelete"],
)
def test_pod_that_its_statefulset_replaces_is_not_deleted(
    revision: str, containers: list[Object], spec: Object
) -> None:
    broken = pod("it-0", labels={"controller-revision-hash": revision}, containers=containers)
    cluster = Cluster({"Pod": [broken]})
    live = stateful_set(readyReplicas=0, updateRevision="r2", spec=spec)
    look(STATEFUL_SET, live, cluster, created=False)
    assert cluster.deleted == []


# ---------------------------------------------------------------------- pods that never get ready


@pytest.mark.parametrize(
    ("container", "age", "message"),
    [
        (waiting("InvalidImageName", "couldn't parse"), 0, "InvalidImageName: couldn't parse"),
        (
            waiting("ImagePullBackOff", 'Back-off pulling "x": ErrImagePull: pull "x": not found'),
            61,
            "ImagePullBackOff: reg/main:1: not found",
        ),
        (
            waiting("CreateContainerConfigError", 'secret "munge" not found'),
            61,
            'CreateContainerConfigError: secret "munge" not found',
        ),
        (
            waiting("CrashLoopBackOff", "back-off", restartCount=5, lastState=CRASHED),
            0,
            "CrashLoopBackOff after 5 restarts: Error, exit code 2; last log line: no such file",
        ),
    ],
    ids=["a bad image name", "an unavailable image", "a missing Secret", "crashes"],
)
def test_wait_fails_with_the_reason_if_a_pod_cannot_recover(
    container: Object, age: float, message: str
) -> None:
    cluster = Cluster({"Pod": [pod(containers=[container], age=age)]}, logs="no such file")
    progress = look(STATEFUL_SET, stateful_set(readyReplicas=0), cluster)
    assert progress.failure == f"pod slurm/it-0, container main: {message}"


@pytest.mark.parametrize(
    ("container", "age"),
    [
        (waiting("ImagePullBackOff"), 5),
        (waiting("CreateContainerConfigError"), 5),
        (waiting("CrashLoopBackOff", restartCount=2, lastState=CRASHED), 100),
        (waiting("ContainerCreating"), 500),
    ],
    ids=["a slow registry", "a Secret that is created later", "a few crashes", "a slow volume"],
)
def test_wait_continues_while_a_pod_can_recover(container: Object, age: float) -> None:
    cluster = Cluster({"Pod": [pod(containers=[container], age=age)]})
    assert not look(STATEFUL_SET, stateful_set(readyReplicas=0), cluster).failure


def test_note_shows_a_crash_before_the_wait_fails() -> None:
    container = waiting("CrashLoopBackOff", restartCount=1, lastState=CRASHED)
    cluster = Cluster({"Pod": [pod(containers=[container])]})
    progress = look(STATEFUL_SET, stateful_set(readyReplicas=0), cluster)
    assert str(progress) == "0 of 2 pods ready: it-0: main: Error, exit code 2, 1 restart"


def test_note_shows_the_warning_event_of_a_slow_start() -> None:
    event = {"type": "Warning", "reason": "FailedMount", "message": 'secret "x"\nnot found'}
    cluster = Cluster(
        {"Pod": [pod(containers=[waiting("ContainerCreating")], age=10)], "Event": [event]}
    )
    progress = look(STATEFUL_SET, stateful_set(readyReplicas=0), cluster)
    assert progress.detail == 'it-0: FailedMount: secret "x" not found'


def test_note_shows_why_a_pod_cannot_be_scheduled() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}
    ]
    pods = Pods(cast(Api, Cluster()), (pod(conditions=conditions),))
    assert pods.trouble() == "pod slurm/it-0: Unschedulable: 0/2"
    assert not pods.failure(), "the wait must continue, because a node may still join"


# --------------------------------------------------------------------------------- Deployments

DEPLOYMENT = Kind("apps/v1", "Deployment")
REPLICA_SETS = [
    {
        "metadata": {
            "name": f"it-{n}",
            "uid": f"rs{n}",
            "ownerReferences": [{"uid": "u", "controller": True}],
            "annotations": {"deployment.kubernetes.io/revision": str(n)},
        }
    }
    for n in (9, 10)
]


def deployment(**status: Any) -> Object:
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "it"}}},
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": 1,
            "availableReplicas": 1,
            **status,
        },
    }


def test_deployment_is_ready_when_only_new_pods_remain() -> None:
    assert look(DEPLOYMENT, deployment()).done
    assert not look(DEPLOYMENT, deployment(replicas=2)).done
    assert not look(DEPLOYMENT, deployment(availableReplicas=0)).done
    assert not look(DEPLOYMENT, deployment(observedGeneration=0)).done


def test_progress_of_a_deployment_ignores_pods_of_older_replicasets() -> None:
    old = pod("old", owner="rs9", containers=[waiting("InvalidImageName")])
    new = pod("new", owner="rs10")
    cluster = Cluster({"ReplicaSet": REPLICA_SETS, "Pod": [old, new]})
    progress = look(DEPLOYMENT, deployment(availableReplicas=0), cluster)
    assert not progress.failure
    assert progress.detail == "new: starting"


def test_restarted_container_is_ready_only_after_running_for_some_time() -> None:
    def running(seconds: float) -> Cluster:
        state = {"running": {"startedAt": ago(seconds)}}
        up = {"name": "main", "ready": True, "restartCount": 1, "state": state}
        ready = pod("new", owner="rs10", ready=True, containers=[up])
        return Cluster({"ReplicaSet": REPLICA_SETS, "Pod": [ready]})

    assert look(DEPLOYMENT, deployment(), running(60)).done
    assert look(DEPLOYMENT, deployment(), running(1)).note == (
        "waiting to see whether the restarted container main in new keeps running"
    )


def test_deployment_without_progress_has_failed() -> None:
    stuck = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    progress = look(DEPLOYMENT, deployment(availableReplicas=0, conditions=[stuck]))
    assert progress.failure == "timed out"


# ----------------------------------------------------------------------------------------- Jobs

JOB = Kind("batch/v1", "Job")


def test_job_is_ready_when_it_is_complete() -> None:
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert look(JOB, {"status": complete}).done
    assert look(JOB, {"spec": {"suspend": True}}).done
    progress = look(JOB, {"spec": {"completions": 3}, "status": {"succeeded": 1, "failed": 1}})
    assert str(progress) == "1 of 3 pods of the Job succeeded, 1 failed"


def test_error_of_a_failed_job_shows_how_its_pod_ended() -> None:
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "limit",
    }
    live = {
        "spec": {"selector": {"matchLabels": {"job": "it"}}},
        "status": {"conditions": [failed]},
    }
    ended = {"name": "main", "ready": False, "state": CRASHED}
    cluster = Cluster({"Pod": [pod(phase="Failed", containers=[ended])]}, logs="disk full")
    assert look(JOB, live, cluster).failure == (
        "the Job failed (BackoffLimitExceeded): limit;"
        " pod slurm/it-0, container main: Error, exit code 2; last log line: disk full"
    )


# -------------------------------------------------------------------------------------- Pods

POD = Kind("v1", "Pod")


def test_error_of_a_rejected_pod_shows_the_reason_of_the_kubelet() -> None:
    rejected = pod("it", phase="Failed")
    rejected["status"] |= {"reason": "NodeAffinity", "message": "node(s) didn't match"}
    assert look(POD, rejected, Cluster({"Pod": [rejected]})).failure == (
        "the pod failed (NodeAffinity): node(s) didn't match"
    )


# --------------------------------------------------------------------------------- other kinds

SERVICE = Kind("v1", "Service")
CLAIM = Kind("v1", "PersistentVolumeClaim")
READY: list[tuple[str, Kind, Object, Object, bool]] = [
    (
        "a headless service",
        SERVICE,
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
        {},
        True,
    ),
    ("a service without a selector", SERVICE, {"spec": {}}, {}, True),
    (
        "an external name",
        SERVICE,
        {"spec": {"type": "ExternalName", "selector": {"a": "b"}}},
        {},
        True,
    ),
    ("a service without pods", SERVICE, {"spec": {"selector": {"a": "b"}}}, {}, False),
    (
        "a service with a ready pod",
        SERVICE,
        {"spec": {"selector": {"a": "b"}}},
        {
            "EndpointSlice": [
                {"endpoints": [{"conditions": {"ready": False}}, {"conditions": {"ready": True}}]}
            ]
        },
        True,
    ),
    (
        "a service whose pods are not ready",
        SERVICE,
        {"spec": {"selector": {"a": "b"}}},
        {"EndpointSlice": [{"endpoints": [{"conditions": {"ready": False}}]}]},
        False,
    ),
    ("a load balancer without an address", SERVICE, {"spec": {"type": "LoadBalancer"}}, {}, False),
    (
        "a load balancer with an address",
        SERVICE,
        {
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        },
        {},
        True,
    ),
    ("a bound claim", CLAIM, {"status": {"phase": "Bound"}}, {}, True),
    ("a pending claim", CLAIM, {"status": {"phase": "Pending"}}, {}, False),
    (
        "a claim that waits for its first pod",
        CLAIM,
        {"spec": {"storageClassName": "late"}, "status": {"phase": "Pending"}},
        {
            "StorageClass": [
                {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
            ]
        },
        True,
    ),
    (
        "a claim that binds immediately",
        CLAIM,
        {"spec": {"storageClassName": "now"}, "status": {"phase": "Pending"}},
        {"StorageClass": [{"metadata": {"name": "now"}, "provisioner": "p"}]},
        False,
    ),
    ("an active namespace", Kind("v1", "Namespace"), {"status": {"phase": "Active"}}, {}, True),
    ("a ConfigMap", Kind("v1", "ConfigMap"), {}, {}, True),
    ("an opaque Secret", Kind("v1", "Secret"), {"type": "Opaque"}, {}, True),
    (
        "a token without its data",
        Kind("v1", "Secret"),
        {"type": "kubernetes.io/service-account-token"},
        {},
        False,
    ),
    (
        "an established definition",
        Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        {"status": {"conditions": [{"type": "Established", "status": "True"}]}},
        {},
        True,
    ),
    ("a succeeded pod", Kind("v1", "Pod"), {"status": {"phase": "Succeeded"}}, {}, True),
    (
        "a DaemonSet on all nodes",
        Kind("apps/v1", "DaemonSet"),
        {
            "status": {
                "desiredNumberScheduled": 2,
                "numberReady": 2,
                "updatedNumberScheduled": 2,
            }
        },
        {},
        True,
    ),
    (
        "a DaemonSet on one of two nodes",
        Kind("apps/v1", "DaemonSet"),
        {
            "status": {
                "desiredNumberScheduled": 2,
                "numberReady": 1,
                "updatedNumberScheduled": 2,
            }
        },
        {},
        False,
    ),
    ("an unknown kind", Kind("example.org/v1", "Widget"), {}, {}, True),
]


@pytest.mark.parametrize(
    ("case", "kind", "live", "around", "done"), READY, ids=[r[0] for r in READY]
)
def test_each_kind_has_its_own_condition_of_readiness(
    case: str, kind: Kind, live: Object, around: dict[str, list[Object]], done: bool
) -> None:
    progress = look(kind, live, Cluster(around))
    assert progress.done is done, case
    assert done or progress.note, "a wait must name its reason"


# --------------------------------------------------------------------------------- annotations


def annotated(**annotations: str) -> Object:
    return {"metadata": {"annotations": {f"pulumi.com/{k}": v for k, v in annotations.items()}}}


@pytest.mark.parametrize(
    ("wanted", "status", "done"),
    [
        ("jsonpath={.status.phase}=Running", {"phase": "Running"}, True),
        ("jsonpath={.status.phase}=Running", {"phase": "Pending"}, False),
        ("jsonpath={.status.addresses[0].ip}", {"addresses": [{"ip": "1"}]}, True),
        ("jsonpath={.status.addresses[0].ip}", {"addresses": []}, False),
        ("jsonpath={.status['a.b']}=3", {"a.b": 3}, True),
        ("condition=Synced", {"conditions": [{"type": "Synced", "status": "True"}]}, True),
        ("condition=Synced=false", {"conditions": [{"type": "Synced", "status": "False"}]}, True),
        ("condition=Synced", {}, False),
        ('["condition=A", "jsonpath={.status.b}"]', {"b": 1}, False),
    ],
)
def test_annotation_waitfor_accepts_custom_conditions(
    wanted: str, status: Object, done: bool
) -> None:
    progress = look(
        Kind("example.org/v1", "Widget"), {**annotated(waitFor=wanted), "status": status}
    )
    assert progress.done is done


def test_invalid_waitfor_condition_is_refused() -> None:
    with pytest.raises(EngineError, match=r"pulumi\.com/waitFor: 'forever'"):
        look(Kind("example.org/v1", "Widget"), annotated(waitFor="forever"))


def test_annotation_skipawait_makes_an_object_ready() -> None:
    live = {**stateful_set(readyReplicas=0), **annotated(skipAwait="true")}
    assert look(STATEFUL_SET, live).done


def test_timeout_comes_from_the_option_the_annotation_or_the_default() -> None:
    assert timeout_of(Operation(timeout=5), annotated(timeoutSeconds="7")) == 5
    assert timeout_of(Operation(), annotated(timeoutSeconds="7")) == 7
    assert timeout_of(Operation(), annotated(timeoutSeconds="soon")) == 600
    assert timeout_of(Operation(), {}) == 600
