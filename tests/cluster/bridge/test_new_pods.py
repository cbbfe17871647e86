"""New pods get Slurm as their scheduler, and limits."""

from tests.cluster.bridge.lab import ALL_PODS, JOB, Lab
from tests.support import kube
from tests.support.waiting import eventually


def test_all_pods_of_a_namespace_have_a_job(lab: Lab) -> None:
    given = lab.manifest("plain", "true")
    del given["spec"]["schedulerName"]
    del given["spec"]["containers"][0]["resources"]
    lab.create(given, namespace=ALL_PODS)
    try:

        def stored() -> dict[str, str]:
            (pod,) = kube.objects(lab.cluster.kubeconfig, "pods", ALL_PODS, "")
            return {**pod["metadata"]["labels"], "phase": pod["status"]["phase"]}

        eventually("the pod has run", lambda: stored()["phase"] == "Succeeded")
        lab.wait_for_state(int(stored()[JOB]), "COMPLETED")
    finally:
        lab.kubectl("delete", "pod", "plain", namespace=ALL_PODS)


def test_pod_without_limits_cannot_use_more_than_its_job_holds(lab: Lab) -> None:
    given = lab.manifest("greedy", "head --bytes=600M /dev/zero | tail >/dev/null")
    given["spec"]["containers"][0]["resources"] = {}
    lab.create(given)
    lab.wait_for("greedy", "Failed")
    (status,) = lab.pod("greedy")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"


def test_pods_of_other_namespaces_stay_as_they_are(lab: Lab) -> None:
    given = lab.manifest("plain", "true")
    del given["spec"]["schedulerName"]
    lab.create(given)
    lab.wait_for("plain", "Succeeded")
    assert lab.pod("plain")["spec"]["schedulerName"] == "default-scheduler"
    assert JOB not in lab.pod("plain")["metadata"]["labels"]
