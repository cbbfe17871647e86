"""A separate stack with two nodes that run both jobs and pods, and one that runs only pods."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.bridge.lab import ALL_PODS, NAMESPACE, ONLY_PODS, Lab
from tests.support.cluster import Cluster, Deployed, write_test_stack
from tests.support.commands import execute

_TAINT = f"{ONLY_PODS}=yes"
_SITE = """
function slurm_job_submit(job, partitions, uid)
  if job.name == "forbidden" then
    slurm.log_user("the site forbids this name")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""


def _share(values: dict[str, Any]) -> None:
    nodeset = values["nodesets"][0]
    del nodeset["cpu_request"]
    nodeset.update(shared_with_pods=True)
    pods_only = {
        "name": "gpus",
        "replicas": 1,
        "cpus": 2,
        "memory": "1GiB",
        "pods_only": True,
        "gpus": {"type": "h100", "count": 2},
        "node_selector": {ONLY_PODS: "yes"},
        "tolerations": [{"key": ONLY_PODS}],
    }
    values["nodesets"].append({**nodeset, **pods_only, "shared_with_pods": False})
    values["users"].append({"name": "bob", "uid": 2001})
    values["accounting"]["qos"] = [{"name": "high", "priority": 100}]
    values["accounting"]["accounts"] = [
        {
            "name": "lab",
            "qos": ["normal", "high"],
            "users": [{"name": "researcher"}, {"name": "bob", "max_submit_jobs": 3}],
        }
    ]
    values["slurm"] = {
        "job_submit_lua": {"text": _SITE},
        "priority": {"type": "multifactor", "fairshare": 1000, "qos": 1_000_000},
        # Minutes between two updates of the fair-share factors.
        "extra": {"slurm.conf": ["PriorityCalcPeriod=1"]},
    }
    values["bridge"] = {
        "namespaces": [ALL_PODS],
        "users": [
            {"namespace": NAMESPACE, "service_account": "bob", "user": "bob"},
            {"namespace": NAMESPACE, "user": "researcher"},
            {"namespace": ALL_PODS, "user": "researcher"},
        ],
    }


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    stack = write_test_stack("bridge", nodes=3, edit=_share)
    # The namespace of pods belongs to their users, and must exist before the deploy.
    execute([sys.executable, "-m", "local", "up", "--stack", stack.stack], timeout=1200)
    stack.kubectl("label", "node", "node-2", "--overwrite", _TAINT)
    stack.kubectl("taint", "node", "node-2", "--overwrite", f"{_TAINT}:NoSchedule")
    for namespace in (NAMESPACE, ALL_PODS):
        stack.kubectl("create", "namespace", namespace, check=False)
    stack.kubectl("-n", NAMESPACE, "create", "serviceaccount", "bob", check=False)
    with deployed(stack):
        yield stack


@pytest.fixture(scope="package")
def _lab(cluster: Cluster) -> Lab:
    lab = Lab(cluster)
    # The bridge may have started before the last nodes, and would find them only after a while.
    # Until then, it would give back jobs that start on a node where their pods are not allowed.
    lab.kill_bridge()
    return lab


@pytest.fixture
def lab(_lab: Lab) -> Iterator[Lab]:
    """Pods of Slurm's users. Each test begins and ends without pods and jobs."""
    _lab.clear()
    yield _lab
    _lab.clear()
