"""One edit of `replicas` resizes the cluster without losing a job."""

from tests.support.cluster import Cluster
from tests.support.nodesets import edit_nodeset, is_idle
from tests.support.waiting import eventually


def test_resizing_loses_no_job_and_leaves_no_record(cluster: Cluster, folder: str) -> None:
    stays = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-0", "--output=/dev/null")
    cluster.wait_for_job(stays, "RUNNING")
    started = cluster.run(f"squeue -h -j {stays} -o %S")

    with cluster.edited(edit_nodeset("cpu", replicas=4)):
        cluster.deploy("up")
        for node in ("cpu-2", "cpu-3"):
            eventually(f"{node} is idle", is_idle(cluster, node))
        drain = "update nodename=cpu-3 state=drain reason=broken-fan"
        cluster.operate("scontrol", *drain.split())

    leaving = cluster.submit(folder, "#!/bin/sh\nsleep 10; echo finished >done", "--nodelist=cpu-2")
    cluster.wait_for_job(leaving, "RUNNING")
    cluster.deploy("up")

    eventually("the pod of cpu-2 is gone", lambda: cluster.pod_uid("cpu-2") == "")
    assert "cpu-2" not in cluster.nodes(), "the pod deletes its node's record before the pod ends"
    assert cluster.job_state(leaving) == "COMPLETED", "the job ends within drain_grace"
    assert cluster.run(f"cat {folder}/done") == "finished"
    eventually("the pod of cpu-3 is gone", lambda: cluster.pod_uid("cpu-3") == "")
    remaining = {"cpu-0", "cpu-1"}
    eventually("the drained node has no record", lambda: set(cluster.nodes()) == remaining, 240)
    assert cluster.job_state(stays) == "RUNNING"
    assert cluster.run(f"squeue -h -j {stays} -o %S") == started, "the job was never restarted"
